-- What workers hold. What one got with a batch is kept together, a hand: so most of what happens to a lease takes
-- no command of its own. A lease's token is its hand's number and its place in the hand, from 0.
--
-- leases:<id>: HASH, packed number of a hand -> packed: how many leases it had, how many are left, and how many
--   heads it has (HAND); for each lease, in a byte, what became of it, and in another, which head is its own, from
--   0; for each head, where it begins; the heads (LEASE).
-- raws:<id>: HASH, packed number of a hand -> how long each entry's raw form is, then all of them. It stays as it
--   is until the last lease of the hand has gone.
-- running:<id>: HASH, slot -> how many downloads the worker has under way there, and SPARE for each lease
--   that may run when one of them has ended.

local HAND, LEASE = '<HHH', '<HBBddHc0'
local HAND_SIZE, PLACE_SIZE = 6, 4
local COUNT_IN_BATCH = 65536
-- What became of a lease: its download is over, takes room in its slot, or waits for another's room; it has gone.
local OVER, RUNNING, WAITS, GONE = 0, 1, 2, 3

local function number_of_hand(seq) return seq * COUNT_IN_BATCH end

local function read_hand(name, packed)
  local count, left, heads = unpack_struct(HAND, packed)
  local refs = HAND_SIZE + count
  return {name = name, packed = packed, count = count, left = left, heads = {}, unread = heads,
    states = {string.byte(packed, HAND_SIZE + 1, refs)}, refs = {string.byte(packed, refs + 1, refs + count)},
    raws = false, ends = false, changed = false}
end

local function write_hand(hand)
  return string.sub(hand.packed, 1, 2) .. pack('<H', hand.left) .. string.sub(hand.packed, 5, HAND_SIZE)
    .. string.char(unpack(hand.states)) .. string.sub(hand.packed, HAND_SIZE + hand.count + 1)
end

-- What the lease at a place, from 1, has in common with others: its slot, and when it may run, among others.
local function head_of(hand, place)
  local ref = hand.refs[place]
  local head = hand.heads[ref]
  if not head then
    local at = unpack_struct('<I4', hand.packed, HAND_SIZE + 2 * hand.count + PLACE_SIZE * ref + 1)
    local attempts, _, alone, run_at, rank, slot = unpack_struct(LEASE, hand.packed, at)
    head = {attempts = attempts, alone = alone, run_at = run_at, rank = rank, name = slot, slot = false}
    hand.heads[ref], hand.unread = head, hand.unread - 1
  end
  return head
end

-- The slot of a lease, about to be changed.
local function slot_at(hand, place)
  local head = hand.heads[hand.refs[place]] or head_of(hand, place)
  head.slot = head.slot or slot_of(head.name)
  return head.slot
end

-- The entry of a lease.
local function entry_at(worker, hand, place)
  local before = 4 * hand.count
  if not hand.raws then
    local name = key('raws:' .. worker)
    hand.raws = call('HGET', name, hand.name) or error('a key is missing: ' .. name)
    hand.ends = {unpack_struct('<' .. string.rep('I4', hand.count), hand.raws)}
    for i = 1, hand.count do hand.ends[i] = (hand.ends[i - 1] or before) + hand.ends[i] end
  end
  local head = head_of(hand, place)
  return {attempts = head.attempts, rank = head.rank, alone = head.alone,
    raw = string.sub(hand.raws, (hand.ends[place - 1] or before) + 1, hand.ends[place])}
end

-- The lease is over: its slot, about to be changed. `mine` are its worker's downloads, if the worker goes on.
local function end_lease(hand, place, mine)
  local states = hand.states
  local state, slot = states[place], slot_at(hand, place)
  if state == RUNNING then slot.active = slot.active - 1 end
  if mine and state ~= OVER then
    local name, counts = slot.name, state == RUNNING and mine.of or mine.spares
    counts[name], mine.changed[name] = (counts[name] or 0) - 1, true
  end
  slot.leased, crawl.leased = slot.leased - 1, crawl.leased - 1
  states[place], hand.left, hand.changed = GONE, hand.left - 1, true
  return slot
end

-- Calls `look` with all leases of a worker: their hand and place.
local function each_lease(worker, look)
  local flat = call('HGETALL', key('leases:' .. worker))
  for i = 1, #flat, 2 do
    local hand = read_hand(flat[i], flat[i + 1])
    for place = 1, hand.count do
      if hand.states[place] ~= GONE then look(hand, place) end
    end
  end
end

-- The worker is no longer there; each entry it held goes to `fate` with its slot.
local function forget(worker, fate)
  local count = 0
  each_lease(worker, function(hand, place)
    local entry = entry_at(worker, hand, place)
    fate(end_lease(hand, place), entry)
    count = count + 1
  end)
  call('DEL', key('leases:' .. worker), key('raws:' .. worker), key('running:' .. worker),
    key('worker:' .. worker))
  call('ZREM', key('workers'), worker)
  if crawl.seeder == worker then crawl.seeder = '' end
  return count
end

-- The server has lost batches that it had answered: it was restarted from an older copy, or a replica that
-- lagged took its place. What the worker believes to hold is not what it holds: all of that waits again.
local function disown(worker)
  forget(worker, wait)
  save_slots()
  save_crawl()
  return {'behind'}
end

-- The worker died: how many entries came back.
local function bury(worker)
  return forget(worker, function(slot, entry)
    entry.attempts = entry.attempts + 1
    if entry.alone == 1 and entry.attempts >= crawl.max_attempts then
      die(slot, entry, 'its worker died ' .. entry.attempts
        .. ' times while holding it, the last time with nothing else')
    else
      wait(slot, entry)
    end
  end)
end

-- Slots that were held, blocked or slowed down after the number `since` of such events, and in which the
-- worker has leases of earlier batches than `seq`.
local function held_slots(worker, seq, since)
  local told = {}
  if since >= crawl.held then return told end
  local wanted, any = {}, false
  local names = call('ZRANGEBYSCORE', key('held'), '(' .. text(since), '+inf')
  find_slots(names)
  for _, name in ipairs(names) do
    if slots[name].leased > 0 then wanted[name], any = true, true end
  end
  if not any then return told end
  each_lease(worker, function(hand, place)
    local name = head_of(hand, place).name
    if wanted[name] and unpack_struct('<d', hand.name) < number_of_hand(seq) then
      told[#told + 1], wanted[name] = name, nil
    end
  end)
  return told
end
