-- needs: crawl politeness slots
-- A crawl as it is carried elsewhere; nothing is changed.
--
-- ARGV[3]: 'about', or 'slots'; then for slots from which place in sizes on, and how many.
-- Answers: 'ok'; about: now, run, mode, seeded, finished, done, last id, stats, state (name, value, ...);
-- slots: lists of name, packed numbers (turn, whether it was served, done, latency, next_at, queued) and packed
-- manners, or ''.

if ARGV[3] == 'about' then
  return {'ok', string.format('%.17g', now), crawl.run, crawl.mode, crawl.seeded, crawl.finished, crawl.done,
    crawl.ids, call('HGETALL', key('stats')), call('HGETALL', key('state'))}
end
local found, from = {}, tonumber(ARGV[4])
local names = call('ZRANGE', key('sizes'), from, from + tonumber(ARGV[5]) - 1)
find_slots(names)
for _, name in ipairs(names) do
  local s = find_slot(name)
  found[#found + 1] = {name,
    pack('<dddddd', s.turn, s.turn >= SERVED and 1 or 0, s.done, s.latency, s.next_at, s.queued),
    s.manners and polite().write(s.manners) or ''}
end
return {'ok', found}
