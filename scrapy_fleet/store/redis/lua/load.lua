-- needs: crawl members politeness slots waiting holding keeping
-- Put pieces of a crawl that comes from elsewhere into this one; it is made if it is not there.
--
-- ARGV, from the third: id for a new crawl; 'begin', 'go on' or 'end'; packed lists: slots (name, served, done,
-- latency, next_at, manners), groups (rank, slot) that entries name by position, entries (group, ord, attempts, since
-- or -1, payload), dead (slot, rank, ord, attempts, reason, payload), overrides and papers (name, value), items, stats,
-- state; at the end: run, mode, seeded, finished, done, last id.
-- Answers: 'ok'; 'in use' if it has entries or live workers at the beginning.

local stage = ARGV[4]
if crawl.clearing == 1 then return {'clearing'} end
if crawl.id == '' then make_crawl(ARGV[3]) end
if stage == 'begin' then
  if crawl.accepted > 0 or any_alive('') then return {'in use'} end
  for _, worker in ipairs(call('ZRANGE', key('workers'), 0, -1)) do
    call('UNLINK', key('worker:' .. worker), key('leases:' .. worker), key('raws:' .. worker),
      key('running:' .. worker))
  end
  call('UNLINK', key('workers'), key('slots'), key('sizes'), key('stats'), key('state'))
  crawl.slots, crawl.served, crawl.seeder = 0, 0, ''
end

local at = 1
while at <= #ARGV[9] do
  local name, value
  name, value, at = unpack_struct('<Hc0I4c0', ARGV[9], at)
  crawl.overrides = crawl.overrides + call('HSET', key('overrides'), name, value)
end
at = 1
while at <= #ARGV[10] do
  local name, value
  name, value, at = unpack_struct('<Hc0I4c0', ARGV[10], at)
  call('HSET', key('papers'), name, value)
end

at = 1
while at <= #ARGV[5] do
  local name, served, done, latency, next_at, manners
  name, served, done, latency, next_at, manners, at = unpack_struct('<Hc0BdddI4c0', ARGV[5], at)
  local slot = slot_of(name)
  slot.done, slot.latency, slot.next_at = done, latency, next_at
  if served == 1 then
    crawl.served = crawl.served + 1
    slot.turn = SERVED + crawl.served
  end
  if manners ~= '' then
    slot.manners = polite().read(manners, 1)
    give_rule(slot)
  end
end

local lines = {}
at = 1
while at <= #ARGV[6] do
  local rank, name
  rank, name, at = unpack_struct('<dHc0', ARGV[6], at)
  lines[#lines + 1] = {rank = rank, slot = slot_of(name), entries = {}}
end
at = 1
while at <= #ARGV[7] do
  local group, ord, attempts, since, payload
  group, ord, attempts, since, payload, at = unpack_struct('<HdHdI4c0', ARGV[7], at)
  local line, raw = lines[group + 1], pack(ORD, ord) .. payload
  local slot = line.slot
  crawl.accepted = crawl.accepted + 1
  if since >= 0 then
    if slot.suspects == 0 then call('ZADD', key('suspects'), since, slot.name) end
    call('ZADD', key('suspects:' .. slot.name), since,
      string.format('%016.0f', id_of(raw)) .. write_entry({attempts = attempts, rank = line.rank, raw = raw}))
    slot.suspects = slot.suspects + 1
    crawl.suspects, crawl.waiting = crawl.suspects + 1, crawl.waiting + 1
  elseif attempts > 0 then
    enter(slot, line.rank, 1)
    slot.back = slot.back + 1
    call('ZADD', back_key(slot, line.rank), ord, write_entry({attempts = attempts, rank = line.rank, raw = raw}))
  else
    line.entries[#line.entries + 1] = raw
  end
end
for _, line in ipairs(lines) do
  if #line.entries > 0 then
    enter(line.slot, line.rank, #line.entries)
    call_many('RPUSH', waiting_key(line.slot, line.rank), line.entries)
  end
end

at = 1
while at <= #ARGV[8] do
  local name, rank, ord, attempts, reason, payload
  name, rank, ord, attempts, reason, payload, at = unpack_struct('<Hc0ddHI4c0I4c0', ARGV[8], at)
  die(slot_of(name), {attempts = attempts, rank = rank, raw = pack(ORD, ord) .. payload}, reason)
  crawl.accepted = crawl.accepted + 1
end
keep({}, ARGV[11], ARGV[12], ARGV[13])

if stage == 'end' then
  crawl.run, crawl.mode, crawl.seeded, crawl.finished = tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16]),
    tonumber(ARGV[17])
  crawl.done, crawl.ids = tonumber(ARGV[18]), math.max(crawl.ids, tonumber(ARGV[19]))
  crawl.accepted = crawl.accepted + crawl.done
  crawl.workers = math.max(crawl.workers, 1)
end
save_slots()
save_crawl()
return {'ok'}
