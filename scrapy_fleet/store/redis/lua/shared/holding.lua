-- What workers hold.
--
-- leases:<id>: HASH, packed token -> packed lease (LEASE below), then its entry's raw form.
-- running:<id>: HASH, slot -> how many downloads the worker has under way there, and SPARE for each lease
--   that may run when one of them has ended.

local LEASE = '<HBBddHc0'
local COUNT_IN_BATCH = 65536
-- What a lease's `running` says: its download is over, takes room in its slot, or waits for another's room.
local OVER, RUNNING, WAITS = 0, 1, 2

-- The slot of a lease, from where LEASE has it.
local function slot_in(packed)
  local low, high = string.byte(packed, 21, 22)
  return string.sub(packed, 23, 22 + low + 256 * high)
end

-- When a lease may run.
local function run_at_of(packed) return (unpack_struct('<d', packed, 5)) end

local function read_lease(packed)
  local attempts, running, alone, _, rank, slot, rest = unpack_struct(LEASE, packed)
  return {attempts = attempts, running = running, alone = alone, rank = rank, slot = slot,
    raw = string.sub(packed, rest)}
end

-- The lease is over: its slot, about to be changed.
local function end_lease(lease)
  local slot = slot_of(lease.slot)
  slot.leased = slot.leased - 1
  if lease.running == RUNNING then slot.active = slot.active - 1 end
  crawl.leased = crawl.leased - 1
  return slot
end

-- The worker is no longer there; each entry it held goes to `fate` with its slot and lease.
local function forget(worker, fate)
  local flat = call('HGETALL', key('leases:' .. worker))
  for i = 1, #flat, 2 do
    local lease = read_lease(flat[i + 1])
    fate(end_lease(lease), lease)
  end
  call('DEL', key('leases:' .. worker), key('running:' .. worker), key('worker:' .. worker))
  call('ZREM', key('workers'), worker)
  if crawl.seeder == worker then crawl.seeder = '' end
  return #flat / 2
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
  return forget(worker, function(slot, lease)
    lease.attempts = lease.attempts + 1
    if lease.alone == 1 and lease.attempts >= crawl.max_attempts then
      die(slot, lease, 'its worker died ' .. lease.attempts
        .. ' times while holding it, the last time with nothing else')
    else
      wait(slot, lease)
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
  local flat = call('HGETALL', key('leases:' .. worker))
  for i = 1, #flat, 2 do
    local name = slot_in(flat[i + 1])
    if wanted[name] and unpack_struct('<d', flat[i]) < seq * COUNT_IN_BATCH then
      told[#told + 1], wanted[name] = name, nil
    end
  end
  return told
end
