-- Entries that a batch brings: those whose key is new wait in their slots.

-- Each list is written once, for all entries of a group. The positions of what was known, packed.
local function add_entries(groups, adds)
  if adds == '' then return '' end
  local lines, at = {}, 1
  while at <= #groups do
    local rank, slot
    rank, slot, at = unpack_struct('<dHc0', groups, at)
    -- Ords that follow each other differ in their first byte, mostly: `rest` are the others, from `rest_of` on.
    lines[#lines + 1] = {rank = rank, slot = slot, sign = crawl.lifo == 1 and rank % 2 == 0 and -1 or 1,
      entries = false, count = 0, rest = '', rest_of = false}
  end
  local known, used, names = {}, {}, {}
  local position, ids, last = 0, crawl.ids, #adds
  local char, unpack_struct, see = string.char, unpack_struct, see
  at = 1
  while at <= last do
    local group, ending, digits, payload
    group, ending, digits, payload, at = unpack_struct('<HI4Bc0I4c0', adds, at)
    if digits == '' or see(ending, digits) then
      local line = lines[group + 1]
      if not line.entries then
        line.entries = {}
        used[#used + 1], names[#names + 1] = line, line.slot
      end
      ids = ids + 1
      local ord, count = line.sign * ids, line.count + 1
      local first = ord % 256
      if ord - first ~= line.rest_of then
        line.rest_of, line.rest = ord - first, string.sub(pack(ORD, ord), 2)
      end
      line.count, line.entries[count] = count, char(first) .. line.rest .. payload
    else
      known[#known + 1] = pack('<I4', position)
    end
    position = position + 1
  end
  crawl.ids = ids
  find_slots(names)
  for _, line in ipairs(used) do
    local slot = slot_of(line.slot)
    enter(slot, line.rank, line.count)
    crawl.accepted, crawl.finished = crawl.accepted + line.count, 0
    call_many(line.sign < 0 and 'LPUSH' or 'RPUSH', waiting_key(slot, line.rank), line.entries)
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
