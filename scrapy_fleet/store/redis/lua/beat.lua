-- needs: crawl members
-- The worker is alive; every worker that has been silent for its time-to-live is given up.
--
-- ARGV[3]: worker. ARGV[4]: its last batch that was answered.
-- Answers: 'ok', counts, seeding, how many entries came back, mode, how many workers are in the crawl.

local MANY_HELD = 1000

local worker = ARGV[3]
local member_facts = alive(worker)
if not member_facts then return {'given up'} end

-- What every worker has heard of need not be remembered.
if crawl.held > 0 and call('ZCARD', key('held')) > MANY_HELD then
  local known = crawl.held
  for _, id in ipairs(call('ZRANGE', key('workers'), 0, -1)) do
    known = math.min(known, tonumber(call('HGET', key('worker:' .. id), 'heard')))
  end
  call('ZREMRANGEBYSCORE', key('held'), '-inf', text(known))
end

-- Most beats find nothing to do. They take half the time, without the functions of what follows.
local silent = call('ZRANGEBYSCORE', key('workers'), '-inf', now)
local behind = member_facts.seq < tonumber(ARGV[4])
if not (behind or silent[1] or is_seeder_wanted()) and crawl.trash + crawl.feeding == 0 then
  save_time()
  return {'ok', counts(), seeding(worker), 0, crawl.mode, call('ZCARD', key('workers'))}
end

-- needs: politeness slots waiting holding seen
if behind then return disown(worker) end
local reaped = 0
for _, id in ipairs(silent) do
  if id ~= worker then reaped = reaped + bury(id) end
end
if crawl.feeding > 0 then
  call('ZREMRANGEBYSCORE', key('producers'), '-inf', now)
  crawl.feeding = call('ZCARD', key('producers'))
end
offer_seeding(worker)
sweep()
save_slots()
save_crawl()
return {'ok', counts(), seeding(worker), reaped, crawl.mode, call('ZCARD', key('workers'))}
