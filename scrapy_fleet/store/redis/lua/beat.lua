-- needs: crawl slots waiting holding seen
-- The worker is alive; every worker that has been silent for its time-to-live is given up.
--
-- ARGV[3]: worker. ARGV[4]: its last batch that was answered. Answers: 'ok', counts, seeding, how many entries came back, mode.

local worker = ARGV[3]
local member_facts = alive(worker)
if not member_facts then return {'given up'} end
if member_facts.seq < tonumber(ARGV[4]) then return disown(worker) end
local reaped = 0
for _, id in ipairs(call('ZRANGEBYSCORE', key('workers'), '-inf', now)) do
  if id ~= worker then reaped = reaped + bury(id) end
end
offer_seeding(worker)
sweep()
save_slots()
save_crawl()
return {'ok', counts(), seeding(worker), reaped, crawl.mode}
