-- Entries that a batch brings: those whose key is new wait in their slots.

-- Each list is written once, for all entries of a group. The positions of what was known, packed.
local function add_entries(groups, adds)
  if adds == '' then return '' end
  local lines, at = {}, 1
  while at <= #groups do
    local rank, slot
    rank, slot, at = unpack_struct('<dHc0', groups, at)
    lines[#lines + 1] = {rank = rank, slot = slot, newest_first = crawl.lifo == 1 and rank % 2 == 0,
      entries = false, count = 0}
  end
  local known, used, names = {}, {}, {}
  local position = 0
  at = 1
  while at <= #adds do
    local group, ending, digits, payload
    group, ending, digits, payload, at = unpack_struct('<HI4Bc0I4c0', adds, at)
    if digits == '' or see(ending, digits) then
      local line = lines[group + 1]
      if not line.entries then
        line.entries = {}
        used[#used + 1], names[#names + 1] = line, line.slot
      end
      crawl.ids, line.count = crawl.ids + 1, line.count + 1
      line.entries[line.count] = pack(RAW, line.newest_first and -crawl.ids or crawl.ids, payload)
    else
      known[#known + 1] = pack('<I4', position)
    end
    position = position + 1
  end
  find_slots(names)
  for _, line in ipairs(used) do
    local slot = slot_of(line.slot)
    enter(slot, line.rank, line.count)
    crawl.accepted, crawl.finished = crawl.accepted + line.count, 0
    call_many(line.newest_first and 'LPUSH' or 'RPUSH', waiting_key(slot, line.rank), line.entries)
  end
  return table.concat(known)
end

local function mark_keys(marks)
  local at = 1
  while at <= #marks do
    local ending, digits
    ending, digits, at = unpack_struct('<I4Bc0', marks, at)
    see(ending, digits)
  end
end
