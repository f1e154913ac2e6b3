-- Entries that wait, and those that are dead. An entry's place among those of its rank is its `ord`: its
-- id, or minus its id where the newest comes first.
--
-- waiting:<rank>:<slot>: LIST, entries that were never leased, packed ord and payload, first one first.
-- back:<rank>:<slot>: ZSET, entries that came back, packed, by ord.
-- ranks:<slot>: ZSET, the ranks that have entries waiting, but for the best, by themselves.
-- suspects:<slot>: ZSET, entries to be run alone, `<id>` and packed entry, by when they began to wait.
-- suspects: ZSET, names of the slots that have any, by when the first of them began to wait.
-- dead: ZSET, packed entries with their slot and reason, by id.

local ENTRY = '<dHd'

local function write_entry(e) return pack(ENTRY, e.ord, e.attempts, e.rank) .. e.payload end

local function read_entry(packed, from)
  local ord, attempts, rank, rest = unpack_struct(ENTRY, packed, from or 1)
  return {ord = ord, attempts = attempts, rank = rank, payload = string.sub(packed, rest)}
end

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
    call('ZADD', back_key(slot, e.rank), e.ord, write_entry(e))
    return
  end
  if slot.suspects == 0 then call('ZADD', key('suspects'), now, slot.name) end
  call('ZADD', key('suspects:' .. slot.name), now,
    string.format('%016.0f', math.abs(e.ord)) .. write_entry(e))
  slot.suspects = slot.suspects + 1
  crawl.suspects, crawl.waiting = crawl.suspects + 1, crawl.waiting + 1
end

local function read_waiting(raw)
  return (unpack_struct('<d', raw)), string.sub(raw, 9)
end

-- The slot's first ordinary entry leaves it.
local function take(slot)
  local rank, e = slot.top, nil
  local list = waiting_key(slot, rank)
  if slot.back > 0 then
    local returned = call('ZRANGE', back_key(slot, rank), 0, 0, 'WITHSCORES')
    local head = returned[1] and call('LINDEX', list, 0)
    if returned[1] and not (head and read_waiting(head) < tonumber(returned[2])) then
      call('ZREM', back_key(slot, rank), returned[1])
      slot.back = slot.back - 1
      e = read_entry(returned[1])
    end
  end
  if not e then
    local raw = call('LPOP', list)
    if not raw then error('a key is missing: ' .. list) end
    local ord, payload = read_waiting(raw)
    e = {ord = ord, attempts = 0, rank = rank, payload = payload}
  end
  slot.queued = slot.queued - 1
  crawl.waiting = crawl.waiting - 1
  if slot.others > 0 and call('EXISTS', list) == 0
      and (slot.back == 0 or call('EXISTS', back_key(slot, rank)) == 0) then
    slot.top = tonumber(call('ZPOPMIN', key('ranks:' .. slot.name))[1])
    slot.others = slot.others - 1
  end
  return e
end

-- The slot's first suspect leaves it.
local function take_suspect(slot)
  local name = key('suspects:' .. slot.name)
  local e = read_entry(call('ZPOPMIN', name)[1], 17)
  local following = call('ZRANGE', name, 0, 0, 'WITHSCORES')
  if following[1] then call('ZADD', key('suspects'), following[2], slot.name)
  else call('ZREM', key('suspects'), slot.name) end
  slot.suspects = slot.suspects - 1
  crawl.suspects, crawl.waiting = crawl.suspects - 1, crawl.waiting - 1
  return e
end

local function die(slot, e, reason)
  call('ZADD', key('dead'), math.abs(e.ord),
    pack('<Hc0I4c0', #slot.name, slot.name, #reason, reason) .. write_entry(e))
  crawl.dead = crawl.dead + 1
end

local function read_dead(packed)
  local name, reason, rest = unpack_struct('<Hc0I4c0', packed)
  return name, reason, read_entry(packed, rest)
end
