-- needs: crawl politeness slots viewing
-- One slot, if the crawl has met it or was told about it; nothing is changed.
--
-- ARGV[3]: its name. Answers: 'ok', now, whether AutoThrottle is on, policy, the slot (see viewing.lua).
-- Without such a slot, 'ok' alone.

if crawl.id == '' then return {'ok'} end
local found = find_slot(ARGV[3])
if not found then
  if call('HEXISTS', key('overrides'), ARGV[3]) == 0 then return {'ok'} end
  -- As it would be made.
  found = slot_of(ARGV[3])
end
return {'ok', string.format('%.17g', now), crawl.auto, crawl.policy, view(found)}
