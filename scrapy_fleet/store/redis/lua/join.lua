-- needs: crawl members politeness slots waiting holding seen
-- Enter the crawl: make it if it is not there, begin it anew if it had finished.
--
-- ARGV, from the third: id for a new crawl, worker, host, pid, home, birth, ttl, whether the worker
-- says which run it belongs to, then the plan: concurrency, delay, jitter, lifo, max_attempts,
-- suspect_after, keep_seen, packed rules of slots, whether AutoThrottle is on, and what else politeness.lua
-- reads of the plan, packed; and how keys are to be known, packed (see seen.lua).
-- Answers: 'ok', id, run, resumed, counts, seeding, state (name, value, ...), others (lists of facts), mode.
-- While a clear is to be gone on with, 'clearing'. If keys are known otherwise than asked for, 'differs', and how.

local worker, ttl, comes_back, keep_seen = ARGV[4], tonumber(ARGV[9]), ARGV[10] == '1', ARGV[17] == '1'

local info = redis.pcall('INFO', 'server')
local version = type(info) == 'string' and string.match(info, 'redis_version:([%d.]+)')
if version then
  local major, minor = string.match(version, '(%d+)%.(%d+)')
  if tonumber(major) * 100 + tonumber(minor) < 602 then return {'old', version} end
end

if crawl.clearing == 1 then return {'clearing'} end
if crawl.id == '' then make_crawl(ARGV[3]) end
local new_run = crawl.finished == 1 and not comes_back
if crawl.filter ~= '' and not (new_run and not keep_seen) and not is_like(ARGV[21]) then
  return {'differs', crawl.filter}
end
if new_run and not keep_seen then forget_seen() end
-- What is settled differs at most in what may change.
if crawl.filter ~= ARGV[21] then set_filter(ARGV[21]) end
if new_run then
  crawl.run = crawl.run + 1
  -- Nothing waits or is leased in a finished crawl: there are no other keys of entries.
  local names = {'slots', 'sizes', 'ready', 'timed', 'full', 'suspects', 'dead', 'stats', 'state', 'held'}
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
    'alone', '', 'told', crawl.held, 'heard', crawl.held, 'host', ARGV[5], 'pid', ARGV[6], 'home', ARGV[7],
    'birth', ARGV[8])
end
call('HSET', key('worker:' .. worker), 'ttl', ttl)
call('ZADD', key('workers'), now + ttl, worker)
offer_seeding(worker)
if crawl.mode == STOP and not comes_back and not any_alive(worker) then crawl.mode = RUN end

crawl.concurrency, crawl.delay, crawl.jitter = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
crawl.lifo, crawl.max_attempts, crawl.suspect_after =
  tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16])
crawl.auto, crawl.policy = tonumber(ARGV[19]), ARGV[20]
call('HSET', KEYS[1], 'policy', crawl.policy)
call('DEL', key('rules'))
crawl.rules = 0
do
  local flat, at = {}, 1
  while at <= #ARGV[18] do
    local name, concurrency, delay, jitter
    name, concurrency, delay, jitter, at = unpack_struct('<Hc0ddd', ARGV[18], at)
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
