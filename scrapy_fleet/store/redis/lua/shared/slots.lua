-- Slots: what is throttled together, and whose turn it is.
--
-- slots: HASH, name -> packed record (RECORD below): `number` in order of creation; `queued` (ordinary
--   entries waiting), `suspects` (waiting to run alone), `back` (of those queued, in back:*), `others`
--   (ranks in ranks:*), `leased`, `active` (leases whose download is not over), `done`; `turn` (served
--   last: a greater one; never served: its number), `top` (rank of its first ordinary entry), `next_at`
--   (when its next request may go out), `newest` (when the lease may run that was paced last), `leeway` (how
--   much of `next_at` is there for that one to begin late), `latency` (moving average, -1: none), `place`
--   (NOWHERE ... FULL),
--   `ways`: MANNERED if its manners follow, OVERRIDDEN if it has an override, the sum if both. Most slots
--   have neither, and cost nothing then.
-- rules: HASH, name -> packed rule of slots that have their own: concurrency, delay, jitter.
-- sizes: ZSET, every slot's name by how many entries wait in it, negative: the busiest first.
-- ready: ZSET, slots that may be served: `<turn><name>` by top, less twice their boost. Where these tie,
--   turns decide.
-- timed: ZSET, names of slots that wait for their time, by when they may be served.
-- full: SET, names of slots that have entries but no room. These three are put right when a slot is
--   saved, and looked at again before they are believed, since a new plan changes the room of slots.

local RECORD = '<I4I4I4I4I4I4I4I4ddddddBB'
local NOWHERE, READY, TIMED, FULL = 0, 1, 2, 3
local MANNERED, OVERRIDDEN = 1, 2
local SERVED = 1e15
-- The slot of tasks, which are handed out without pacing, whatever the plan says.
local TASKS, UNPACED = '(tasks)', 1073741824

local slots, touched = {}, {}

local function give_rule(slot)
  local own = crawl.rules > 0 and call('HGET', key('rules'), slot.name)
  if slot.name == TASKS then
    slot.concurrency, slot.delay, slot.jitter = UNPACED, 0, 0
    slot.rule_concurrency, slot.rule_delay, slot.unpaced = UNPACED, 0, true
  elseif own then
    slot.concurrency, slot.delay, slot.jitter = unpack_struct('<ddd', own)
    slot.rule_concurrency, slot.rule_delay = slot.concurrency, slot.delay
  end
  if crawl.auto == 1 and not slot.unpaced or slot.manners or slot.override then polite().treat(slot) end
end

local function standing(slot) return slot.boost and slot.top - 2 * slot.boost or slot.top end
local function member(slot, turn) return string.format('%016.0f', turn) .. slot.name end

local function find_override(slot)
  local packed = call('HGET', key('overrides'), slot.name)
  if packed then slot.override = polite().read_override(packed) end
end

local function read_slot(name, record)
  local number, queued, suspects, back, others, leased, active, done, turn, top, next_at, newest,
    leeway, latency, where, ways, rest = unpack_struct(RECORD, record)
  -- Made with all its fields, since a table that grows is slow.
  local s = {name = name, number = number, queued = queued, suspects = suspects, back = back, others = others,
    leased = leased, active = active, done = done, turn = turn, top = top, next_at = next_at,
    newest = newest, leeway = leeway, latency = latency, place = where, placed = turn, placed_by = 0, size = queued + suspects,
    concurrency = crawl.concurrency, delay = crawl.delay, jitter = crawl.jitter, room = 0, list = false,
    list_of = false}
  if ways % 2 == MANNERED then s.manners = polite().read(record, rest) end
  if ways >= OVERRIDDEN then find_override(s) end
  give_rule(s)
  s.placed_by = where == TIMED and opens_at(s) or standing(s)
  slots[name] = s
  return s
end

-- A slot that is there, or nil.
local function find_slot(name)
  if slots[name] then return slots[name] end
  local record = call('HGET', key('slots'), name)
  return record and read_slot(name, record) or nil
end

-- Slots that will be looked for, brought in one go.
local function find_slots(names)
  local missing, asked = {}, {}
  for _, name in ipairs(names) do
    if not slots[name] and not asked[name] then
      missing[#missing + 1], asked[name] = name, true
    end
  end
  for first = 1, #missing, AT_ONCE do
    local last = math.min(first + AT_ONCE - 1, #missing)
    for i, record in ipairs(call('HMGET', key('slots'), unpack(missing, first, last))) do
      if record then read_slot(missing[first + i - 1], record) end
    end
  end
end

-- A slot that is about to be changed; it is made if it is not there.
local function slot_of(name)
  local s = find_slot(name)
  if not s then
    s = {name = name, number = crawl.slots, queued = 0, suspects = 0, back = 0, others = 0, leased = 0,
      active = 0, done = 0, turn = crawl.slots, top = 0, next_at = 0, newest = 0, leeway = 0, latency = -1,
      place = NOWHERE,
      concurrency = crawl.concurrency, delay = crawl.delay, jitter = crawl.jitter}
    crawl.slots = crawl.slots + 1
    if crawl.overrides > 0 then find_override(s) end
    give_rule(s)
    slots[name] = s
  end
  touched[name] = s
  return s
end

local function has_room(slot) return slot.active < slot.concurrency end
local function is_due(slot) return opens_at(slot) <= now end

-- Put slots where they are looked for.
local function place(some)
  local ready, timed, full = {}, {}, {}
  local not_ready, not_timed, not_full = {}, {}, {}
  for _, slot in pairs(some) do
    local from, to, by = slot.place, NOWHERE, 0
    if slot.queued > 0 then
      if not has_room(slot) then to = FULL
      elseif is_due(slot) then to, by = READY, standing(slot)
      else to, by = TIMED, opens_at(slot) end
    end
    if from == READY and (to ~= READY or slot.placed ~= slot.turn) then
      not_ready[#not_ready + 1] = member(slot, slot.placed)
    elseif from == TIMED and to ~= TIMED then
      not_timed[#not_timed + 1] = slot.name
    elseif from == FULL and to ~= FULL then
      not_full[#not_full + 1] = slot.name
    end
    local stays = from == to and slot.placed_by == by
    if to == READY and not (stays and slot.placed == slot.turn) then
      ready[#ready + 1] = by
      ready[#ready + 1] = member(slot, slot.turn)
    elseif to == TIMED and not stays then
      timed[#timed + 1] = by
      timed[#timed + 1] = slot.name
    elseif to == FULL and from ~= FULL then
      full[#full + 1] = slot.name
    end
    slot.place, slot.placed, slot.placed_by = to, slot.turn, by
  end
  call_many('ZREM', key('ready'), not_ready)
  call_many('ZREM', key('timed'), not_timed)
  call_many('SREM', key('full'), not_full)
  call_many('ZADD', key('ready'), ready)
  call_many('ZADD', key('timed'), timed)
  call_many('SADD', key('full'), full)
end

local function save_slots()
  place(touched)
  local records, sizes = {}, {}
  for name, s in pairs(touched) do
    local manners = s.manners and polite().write(s.manners) or ''
    local ways = (manners == '' and 0 or MANNERED) + (s.override and OVERRIDDEN or 0)
    records[#records + 1] = name
    records[#records + 1] = pack(RECORD, s.number, s.queued, s.suspects, s.back, s.others, s.leased, s.active,
      s.done, s.turn, s.top, s.next_at, s.newest, s.leeway, s.latency, s.place, ways) .. manners
    if s.size ~= s.queued + s.suspects then
      sizes[#sizes + 1] = -(s.queued + s.suspects)
      sizes[#sizes + 1] = name
    end
  end
  call_many('HSET', key('slots'), records)
  call_many('ZADD', key('sizes'), sizes)
end
