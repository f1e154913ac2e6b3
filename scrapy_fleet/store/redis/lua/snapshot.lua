-- needs: crawl politeness slots waiting holding viewing
-- All that an observer reads; nothing is changed.
--
-- ARGV[3]: how many slots. Answers: 'ok', now, run, finished, seeded, counts, seen, items, slots there are,
-- stats (name, value, ...), workers (lists of facts), slots (see viewing.lua), mode, workers that
-- ever came, whether AutoThrottle is on, policy. Without a crawl, 'ok' alone.

if crawl.id == '' then return {'ok'} end
local workers, views = {}, {}
local deadlines = call('ZRANGE', key('workers'), 0, -1, 'WITHSCORES')
for i = 1, #deadlines, 2 do
  local id = deadlines[i]
  local leased = 0
  for _, hand in ipairs(call('HVALS', key('leases:' .. id))) do
    local _, left = unpack_struct(HAND, hand)
    leased = leased + left
  end
  workers[#workers + 1] = {id, deadlines[i + 1], leased,
    unpack(call('HMGET', key('worker:' .. id), 'number', 'host', 'pid', 'joined'))}
end
local most = tonumber(ARGV[3])
local names = most > 0 and call('ZRANGE', key('sizes'), 0, most - 1) or {}
find_slots(names)
for _, name in ipairs(names) do
  views[#views + 1] = view(find_slot(name))
end
return {'ok', string.format('%.17g', now), crawl.run, crawl.finished, crawl.seeded, counts(), crawl.seen,
  tonumber(call('HGET', KEYS[1], 'items') or 0), crawl.slots, call('HGETALL', key('stats')), workers, views,
  crawl.mode, crawl.workers, crawl.auto, crawl.policy}
