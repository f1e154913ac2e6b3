-- Slots: what is throttled together, and whose turn it is.
--
-- slots: HASH, name -> packed record (RECORD below): `number` in order of creation; `queued` (ordinary
--   entries waiting), `suspects` (waiting to run alone), `back` (of those queued, in back:*), `others`
--   (ranks in ranks:*), `leased`, `active` (leases whose download is not over), `done`; `turn` (served
--   last: a greater one; never served: its number), `top` (rank of its first ordinary entry), `next_at`
--   (when its next request may go out), `latency` (moving average, -1: none), `place` (NOWHERE ... FULL).
-- rules: HASH, name -> packed rule of slots that have their own: concurrency, delay, jitter.
-- sizes: ZSET, every slot's name by how many entries wait in it, negative: the busiest first.
-- ready: ZSET, slots that may be served: `<turn><name>` by top. Where ranks tie, turns decide.
-- timed: ZSET, names of slots that wait for their time, by next_at.
-- full: SET, names of slots that have entries but no room. These three are put right when a slot is
--   saved, and looked at again before they are believed, since a new plan changes the room of slots.

local RECORD = '<I4I4I4I4I4I4I4I4ddddB'
local NOWHERE, READY, TIMED, FULL = 0, 1, 2, 3
local SERVED = 1e15

local slots, touched = {}, {}

local function give_rule(slot)
  local own = crawl.rules > 0 and call('HGET', key('rules'), slot.name)
  if own then
    slot.concurrency, slot.delay, slot.jitter = unpack_struct('<ddd', own)
  else
    slot.concurrency, slot.delay, slot.jitter = crawl.concurrency, crawl.delay, crawl.jitter
  end
end

local function member(slot) return string.format('%016.0f', slot.turn) .. slot.name end

local function read_slot(name, record)
  local s = {name = name}
  s.number, s.queued, s.suspects, s.back, s.others, s.leased, s.active, s.done,
    s.turn, s.top, s.next_at, s.latency, s.place = unpack_struct(RECORD, record)
  s.size = s.queued + s.suspects
  s.placed, s.placed_by = member(s), s.place == TIMED and s.next_at or s.top
  give_rule(s)
  slots[name] = s
  return s
end

-- A slot that is there, or nil.
local function find_slot(name)
  if slots[name] then return slots[name] end
  local record = call('HGET', key('slots'), name)
  return record and read_slot(name, record) or nil
end

-- A slot that is about to be changed; it is made if it is not there.
local function slot_of(name)
  local s = find_slot(name)
  if not s then
    s = {name = name, number = crawl.slots, queued = 0, suspects = 0, back = 0, others = 0, leased = 0,
      active = 0, done = 0, turn = crawl.slots, top = 0, next_at = 0, latency = -1, place = NOWHERE}
    crawl.slots = crawl.slots + 1
    give_rule(s)
    slots[name] = s
  end
  touched[name] = s
  return s
end

local function has_room(slot) return slot.active < slot.concurrency end
local function is_due(slot) return slot.next_at - now <= HORIZON end

-- Put the slot where it is looked for.
local function place(slot)
  local to, by, as = NOWHERE, 0, slot.name
  if slot.queued > 0 then
    if not has_room(slot) then to = FULL
    elseif is_due(slot) then to, by, as = READY, slot.top, member(slot)
    else to, by = TIMED, slot.next_at end
  end
  local from = slot.place
  if from == READY and (to ~= READY or slot.placed ~= as) then
    call('ZREM', key('ready'), slot.placed)
  elseif from == TIMED and to ~= TIMED then
    call('ZREM', key('timed'), slot.name)
  elseif from == FULL and to ~= FULL then
    call('SREM', key('full'), slot.name)
  end
  local stays = from == to and slot.placed_by == by
  if to == READY and not (stays and slot.placed == as) then
    call('ZADD', key('ready'), by, as)
  elseif to == TIMED and not stays then
    call('ZADD', key('timed'), by, as)
  elseif to == FULL and from ~= FULL then
    call('SADD', key('full'), as)
  end
  slot.place, slot.placed, slot.placed_by = to, as, by
end

local function place_slots()
  for _, slot in pairs(touched) do place(slot) end
end

local function save_slots()
  local records, sizes = {}, {}
  for name, s in pairs(touched) do
    place(s)
    records[#records + 1] = name
    records[#records + 1] = pack(RECORD, s.number, s.queued, s.suspects, s.back, s.others, s.leased,
      s.active, s.done, s.turn, s.top, s.next_at, s.latency, s.place)
    if s.size ~= s.queued + s.suspects then
      sizes[#sizes + 1] = -(s.queued + s.suspects)
      sizes[#sizes + 1] = name
    end
  end
  call_many('HSET', key('slots'), records)
  call_many('ZADD', key('sizes'), sizes)
end
