-- needs: crawl slots waiting holding seen
-- Enter the crawl: make it if it is not there, begin it anew if it had finished.
--
-- ARGV, from the third: id for a new crawl, format, worker, host, pid, home, birth, ttl, whether the worker
-- says which run it belongs to, then the plan: concurrency, delay, jitter, lifo, max_attempts,
-- suspect_after, keep_seen, and packed rules of slots.
-- Answers: 'ok', id, run, resumed, counts, seeding, state (name, value, ...), others (lists of facts), mode.
-- While a clear is to be gone on with, 'clearing'.

local worker, ttl, comes_back, keep_seen = ARGV[5], tonumber(ARGV[10]), ARGV[11] == '1', ARGV[18] == '1'

local info = redis.pcall('INFO', 'server')
local version = type(info) == 'string' and string.match(info, 'redis_version:([%d.]+)')
if version then
  local major, minor = string.match(version, '(%d+)%.(%d+)')
  if tonumber(major) * 100 + tonumber(minor) < 602 then return {'old', version} end
end
if crawl.format and crawl.format > tonumber(ARGV[4]) then return {'newer', tostring(crawl.format)} end

if crawl.clearing == 1 then return {'clearing'} end
if crawl.id == '' then
  crawl.id, crawl.format, crawl.run, crawl.epoch, crawl.buckets = ARGV[3], tonumber(ARGV[4]), 1, 1, 1
end
local new_run = crawl.finished == 1 and not comes_back
if new_run then
  crawl.run = crawl.run + 1
  if not keep_seen then forget_seen() end
  -- Nothing waits or is leased in a finished crawl: there are no other keys of entries.
  local names = {'slots', 'sizes', 'ready', 'timed', 'full', 'suspects', 'dead', 'stats', 'state'}
  for i, name in ipairs(names) do names[i] = key(name) end
  call('UNLINK', unpack(names))
end
if new_run then
  for _, name in ipairs({'accepted', 'waiting', 'leased', 'done', 'dead', 'suspects', 'slots', 'seeded',
      'finished'}) do
    crawl[name] = 0
  end
  crawl.seeder = ''
end

if call('EXISTS', key('worker:' .. worker)) == 0 then
  crawl.workers = crawl.workers + 1
  call('HSET', key('worker:' .. worker), 'number', crawl.workers, 'joined', now, 'seq', -1, 'known', '',
    'alone', '', 'host', ARGV[6], 'pid', ARGV[7], 'home', ARGV[8], 'birth', ARGV[9])
end
call('HSET', key('worker:' .. worker), 'ttl', ttl)
call('ZADD', key('workers'), now + ttl, worker)
offer_seeding(worker)
if crawl.mode == STOP and not comes_back and not any_alive(worker) then crawl.mode = RUN end

crawl.concurrency, crawl.delay, crawl.jitter = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
crawl.lifo, crawl.max_attempts, crawl.suspect_after =
  tonumber(ARGV[15]), tonumber(ARGV[16]), tonumber(ARGV[17])
call('DEL', key('rules'))
crawl.rules = 0
do
  local flat, at = {}, 1
  while at <= #ARGV[19] do
    local name, concurrency, delay, jitter
    name, concurrency, delay, jitter, at = unpack_struct('<Hc0ddd', ARGV[19], at)
    flat[#flat + 1] = name
    flat[#flat + 1] = pack('<ddd', concurrency, delay, jitter)
    crawl.rules = crawl.rules + 1
  end
  call_many('HSET', key('rules'), flat)
end
-- Slots without room may have some now; those that have none any more are noticed when it is their turn.
for _, name in ipairs(call('SMEMBERS', key('full'))) do slot_of(name) end
save_slots()
save_crawl()

local others = {}
for _, id in ipairs(call('ZRANGE', key('workers'), 0, -1)) do
  if id ~= worker then
    local facts = call('HMGET', key('worker:' .. id), 'number', 'host', 'pid', 'home', 'birth')
    others[#others + 1] = {id, unpack(facts)}
  end
end
local resumed = not new_run and crawl.accepted > 0
return {'ok', crawl.id, crawl.run, resumed and 1 or 0, counts(), seeding(worker),
  call('HGETALL', key('state')), others, crawl.mode}
