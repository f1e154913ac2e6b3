-- needs: crawl slots waiting holding seen
-- The worker is alive; every worker that has been silent for its time-to-live is given up.
--
-- ARGV[3]: worker. Answers: 'ok', counts, seeding, how many entries came back.

local worker = ARGV[3]
if not alive(worker) then return {'given up'} end
local reaped = 0
for _, id in ipairs(call('ZRANGEBYSCORE', key('workers'), '-inf', now)) do
  if id ~= worker then reaped = reaped + bury(id) end
end
offer_seeding(worker)
sweep()
save_slots()
save_crawl()
return {'ok', counts(), seeding(worker), reaped}
