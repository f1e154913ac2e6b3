-- needs: crawl members politeness slots waiting holding
-- Give up workers whose processes are known to be gone.
--
-- ARGV, from the third: workers. Answers: 'ok', how many entries came back.

local reaped = 0
for i = 3, #ARGV do
  if call('EXISTS', key('worker:' .. ARGV[i])) == 1 then reaped = reaped + bury(ARGV[i]) end
end
if crawl.id ~= '' then
  save_slots()
  save_crawl()
end
return {'ok', reaped}
