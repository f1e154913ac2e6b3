-- needs: crawl politeness slots
-- Tell the fleet how to treat a slot, or take it back; the crawl is made if it is not there.
--
-- ARGV, from the third: id for a new crawl, slot, packed override (see politeness.lua) or ''. Answers: 'ok'.

local name, packed = ARGV[4], ARGV[5]
if crawl.id == '' then make_crawl(ARGV[3]) end
local slot = find_slot(name)
if packed ~= '' then
  crawl.overrides = crawl.overrides + call('HSET', key('overrides'), name, packed)
else
  crawl.overrides = crawl.overrides - call('HDEL', key('overrides'), name)
end
if slot then
  local delay, concurrency = slot.delay, slot.concurrency
  slot = slot_of(name)
  slot.override = packed ~= '' and polite().read_override(packed) or nil
  if slot.manners then polite().pardon(slot.manners) end
  polite().treat(slot)
  if slot.delay > delay or slot.concurrency < concurrency then polite().announce(slot) end
  save_slots()
end
save_crawl()
return {'ok'}
