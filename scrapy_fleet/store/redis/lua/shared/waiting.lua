-- Entries that wait, and those that are dead. An entry's place among those of its rank is its `ord`: its
-- id, or minus its id where the newest comes first. Its ord, in five bytes, which is enough for half a
-- million million entries, and its payload are its `raw` form, which goes from hand to hand as it is.
--
-- waiting:<rank>:<slot>: LIST, entries that were never leased, raw, first one first.
-- back:<rank>:<slot>: ZSET, entries that came back, packed, by ord.
-- ranks:<slot>: ZSET, the ranks that have entries waiting, but for the best, by themselves.
-- suspects:<slot>: ZSET, entries to be run alone, `<id>` and packed entry, by when they began to wait.
-- suspects: ZSET, names of the slots that have any, by when the first of them began to wait.
-- dead: ZSET, packed entries with their slot and reason, by id.

local ENTRY, ORD = '<Hd', '<i5'

local function write_entry(e) return pack(ENTRY, e.attempts, e.rank) .. e.raw end

local function read_entry(packed, from)
  local attempts, rank, rest = unpack_struct(ENTRY, packed, from or 1)
  return {attempts = attempts, rank = rank, raw = string.sub(packed, rest)}
end

local function ord_of(raw) return (unpack_struct(ORD, raw)) end
local function id_of(raw) return math.abs(ord_of(raw)) end

local function waiting_key(slot, rank)
  if slot.list_of ~= rank then
    slot.list_of, slot.list = rank, key('waiting:' .. text(rank) .. ':' .. slot.name)
  end
  return slot.list
end

local function back_key(slot, rank) return key('back:' .. text(rank) .. ':' .. slot.name) end

-- So many more entries of this rank wait in the slot.
local function enter(slot, rank, number)
  if slot.queued == 0 then
    slot.top = rank
  elseif rank < slot.top then
    slot.others = slot.others + call('ZADD', key('ranks:' .. slot.name), slot.top, text(slot.top))
    slot.top = rank
  elseif rank > slot.top then
    slot.others = slot.others + call('ZADD', key('ranks:' .. slot.name), rank, text(rank))
  end
  slot.queued = slot.queued + number
  crawl.waiting = crawl.waiting + number
end

-- An entry comes back to wait.
local function wait(slot, e)
  if e.attempts < crawl.suspect_after then
    enter(slot, e.rank, 1)
    slot.back = slot.back + 1
    call('ZADD', back_key(slot, e.rank), ord_of(e.raw), write_entry(e))
    return
  end
  if slot.suspects == 0 then call('ZADD', key('suspects'), now, slot.name) end
  call('ZADD', key('suspects:' .. slot.name), now,
    string.format('%016.0f', id_of(e.raw)) .. write_entry(e))
  slot.suspects = slot.suspects + 1
  crawl.suspects, crawl.waiting = crawl.suspects + 1, crawl.waiting + 1
end

-- What was read of a list to be taken: entries from `at` on, after the first `taken` that were. The list
-- itself is cut at the end, in one go.
local lines = {}

local function line_of(list)
  local line = lines[list]
  if not line then
    line = {entries = {}, at = 1, taken = 0, over = false}
    lines[list] = line
  end
  return line
end

-- The first entry of a list that was not taken, or nil; `some` are read at a time.
local function peek(list, line, some)
  if not line.entries[line.at] and not line.over then
    line.entries, line.at = call('LRANGE', list, line.taken, line.taken + some - 1), 1
    line.over = #line.entries < some
  end
  return line.entries[line.at]
end

-- The slot's first ordinary entries leave it: one, or up to so many that were never leased and have the same rank;
-- it is expected that `some` will. A list, where in it they begin and end, raw, and their rank and attempts.
local function take(slot, most, some)
  local rank = slot.top
  local list = waiting_key(slot, rank)
  local line = line_of(list)
  local head = peek(list, line, some)
  local entries, first, last, attempts = line.entries, line.at, line.at, 0
  if slot.back > 0 then
    local returned = call('ZRANGE', back_key(slot, rank), 0, 0, 'WITHSCORES')
    if returned[1] and not (head and ord_of(head) < tonumber(returned[2])) then
      call('ZREM', back_key(slot, rank), returned[1])
      slot.back = slot.back - 1
      local e = read_entry(returned[1])
      entries, first, last, attempts = {e.raw}, 1, 1, e.attempts
    end
  else
    last = math.min(#entries, first + most - 1)
  end
  if entries == line.entries then
    if not head then error('a key is missing: ' .. list) end
    line.at, line.taken = last + 1, line.taken + last - first + 1
  end
  slot.queued = slot.queued - (last - first + 1)
  crawl.waiting = crawl.waiting - (last - first + 1)
  if slot.others > 0 and not peek(list, line, some)
      and (slot.back == 0 or call('EXISTS', back_key(slot, rank)) == 0) then
    slot.top = tonumber(call('ZPOPMIN', key('ranks:' .. slot.name))[1])
    slot.others = slot.others - 1
  end
  return entries, first, last, rank, attempts
end

-- What was taken of the lists leaves them.
local function cut_lists()
  for list, line in pairs(lines) do
    if line.taken > 0 then call('LTRIM', list, line.taken, -1) end
  end
end

-- The slot's first suspect leaves it: the same of it.
local function take_suspect(slot)
  local name = key('suspects:' .. slot.name)
  local e = read_entry(call('ZPOPMIN', name)[1], 17)
  local following = call('ZRANGE', name, 0, 0, 'WITHSCORES')
  if following[1] then call('ZADD', key('suspects'), following[2], slot.name)
  else call('ZREM', key('suspects'), slot.name) end
  slot.suspects = slot.suspects - 1
  crawl.suspects, crawl.waiting = crawl.suspects - 1, crawl.waiting - 1
  return {e.raw}, 1, 1, e.rank, e.attempts
end

local function die(slot, e, reason)
  call('ZADD', key('dead'), id_of(e.raw),
    pack('<Hc0I4c0', #slot.name, slot.name, #reason, reason) .. write_entry(e))
  crawl.dead = crawl.dead + 1
end

local function read_dead(packed)
  local name, reason, rest = unpack_struct('<Hc0I4c0', packed)
  return name, reason, read_entry(packed, rest)
end
