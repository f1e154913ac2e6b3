-- Workers and what they hold.
--
-- workers: ZSET, ids of the workers in the crawl, by when they are given up if they stay silent.
-- worker:<id>: HASH, `number` in order of coming, `ttl`, `joined`, `host`, `pid`, `home`, `birth`; of its
--   last batch `seq` and `known` (packed positions); `alone`: the token that must be its only one.
-- leases:<id>: HASH, packed token -> packed lease (LEASE below), then the payload of its entry.
-- running:<id>: HASH, slot -> how many downloads the worker has under way there.

local LEASE = '<dHBBddHc0'
local COUNT_IN_BATCH = 65536

local function read_lease(packed)
  local ord, attempts, running, alone, run_at, rank, slot, rest = unpack_struct(LEASE, packed)
  return {ord = ord, attempts = attempts, running = running, alone = alone, run_at = run_at, rank = rank,
    slot = slot, payload = string.sub(packed, rest)}
end

local function write_lease(l)
  return pack(LEASE, l.ord, l.attempts, l.running, l.alone, l.run_at, l.rank, #l.slot, l.slot) .. l.payload
end

-- The worker is alive: its facts, or nil if it is not in the crawl.
local function alive(worker)
  local facts = call('HMGET', key('worker:' .. worker), 'ttl', 'seq', 'alone')
  if not facts[1] then return nil end
  call('ZADD', key('workers'), now + facts[1], worker)
  return {seq = tonumber(facts[2]), alone = facts[3]}
end

-- Whether any worker, but for one, has been heard of within its time-to-live.
local function any_alive(but)
  local found = call('ZRANGEBYSCORE', key('workers'), '(' .. string.format('%.17g', now), '+inf', 'LIMIT', 0, 2)
  return found[1] ~= nil and (found[1] ~= but or found[2] ~= nil)
end

-- The lease is over: its slot, about to be changed.
local function end_lease(lease)
  local slot = slot_of(lease.slot)
  slot.leased = slot.leased - 1
  slot.active = slot.active - lease.running
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
