-- needs: crawl politeness slots waiting
-- Dead entries wait again ('requeue'), or are given up for good ('drop').
--
-- ARGV, from the third: which of the two, how many at most, and ids; without ids, the first ones.
-- Answers: 'ok', how many there were.

local requeue, most = ARGV[3] == 'requeue', tonumber(ARGV[4])
local chosen = {}
if #ARGV == 4 then
  chosen = call('ZRANGE', key('dead'), 0, most - 1)
end
for i = 5, #ARGV do chosen[#chosen + 1] = call('ZRANGEBYSCORE', key('dead'), ARGV[i], ARGV[i])[1] end
local mended = 0
for _, packed in ipairs(chosen) do
  if call('ZREM', key('dead'), packed) == 1 then
    mended = mended + 1
    crawl.dead = crawl.dead - 1
    if requeue then
      local name, _, e = read_dead(packed)
      e.attempts = 0
      local slot = slot_of(name)
      if slot.manners then
        polite().pardon(slot.manners)
        polite().treat(slot)
      end
      wait(slot, e)
      crawl.finished = 0
    else
      crawl.done = crawl.done + 1
    end
  end
end
if mended > 0 then
  save_slots()
  save_crawl()
end
return {'ok', mended}
