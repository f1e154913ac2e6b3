-- needs: crawl members politeness slots waiting holding seen
-- Forget the crawl, a piece at a time: no call holds the server for long. The first call forgets the
-- workers; until the last has been made, none can join, so nobody meets a crawl that is half there.
--
-- ARGV[3]: 'begin', or 'go on'.
-- Answers: 'ok', and 1 if there is more to do; 'in use' while live workers are in the crawl.

local SLOTS_AT_ONCE = 200

if crawl.id == '' then return {'ok', 0} end
if crawl.clearing == 0 then
  if ARGV[3] == 'go on' then
    -- What was seen is swept after all else; the crawl may be in use again.
    sweep()
    save_crawl()
    return {'ok', crawl.trash}
  end
  if any_alive('') then return {'in use'} end
  for _, worker in ipairs(call('ZRANGE', key('workers'), 0, -1)) do
    call('UNLINK', key('worker:' .. worker), key('leases:' .. worker), key('raws:' .. worker),
      key('running:' .. worker))
  end
  call('UNLINK', key('workers'))
  crawl.clearing = 1
end

local names = call('ZRANGE', key('sizes'), 0, SLOTS_AT_ONCE - 1)
find_slots(names)
for _, name in ipairs(names) do
  local slot = find_slot(name)
  local ranks = call('ZRANGE', key('ranks:' .. name), 0, -1)
  ranks[#ranks + 1] = text(slot.top)
  for _, rank in ipairs(ranks) do
    call('UNLINK', waiting_key(slot, tonumber(rank)), back_key(slot, tonumber(rank)))
  end
  call('UNLINK', key('ranks:' .. name), key('suspects:' .. name))
  call('HDEL', key('slots'), name)
  call('ZREM', key('sizes'), name)
end
if #names == SLOTS_AT_ONCE then
  save_crawl()
  return {'ok', 1}
end

for _, name in ipairs({'slots', 'sizes', 'ready', 'timed', 'full', 'suspects', 'dead', 'stats', 'state',
    'items', 'overrides', 'held', 'papers', 'makers', 'producers'}) do
  call('UNLINK', key(name))
end
call('HDEL', KEYS[1], 'items')
forget_seen()
set_filter('')
for _, name in ipairs({'accepted', 'waiting', 'leased', 'done', 'dead', 'suspects', 'slots', 'seeded',
    'finished', 'workers', 'overrides', 'feeding', 'clearing'}) do
  crawl[name] = 0
end
crawl.seeder, crawl.mode, crawl.run = '', RUN, crawl.run + 1
save_crawl()
return {'ok', 1}
