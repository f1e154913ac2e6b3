-- The crawl itself. All its keys begin as KEYS[1] does, which is `<prefix>meta`, and share its hash tag.
--
-- meta: HASH, what there is one of: `id` (made with the crawl: another one, or none, means that the store
--   was emptied), `format`, `seeder` (the worker that runs the seeds, or ''), and `facts`, packed numbers in
--   the order of FACTS: `run`; the newest plan's `lifo`, `max_attempts`, `suspect_after`, its common rule
--   `concurrency`, `delay`, `jitter`, and how many slots have their own, `rules`; `seeded` and `finished`;
--   `mode` (what the fleet is told: RUN, PAUSE or STOP), `clearing` (1: a clear is to be gone on with);
--   counters `accepted` = `waiting` + `leased` + `done` + `dead`, `suspects` (of those waiting), `seen`,
--   `slots`; numbers last given: `ids` (entries), `served` (turns), `workers`; `buckets` and `epoch` (see
--   seen.lua); `clock` (the latest time) and `offset` (added to the server's clock, which may be set
--   back, or be another one after a failover).
-- stats: HASH, counters of the spider's own: name -> number.
-- state: HASH, spider.state: name -> packed value.
-- items: LIST, packed items, oldest first.
--
-- ARGV[1]: the time in seconds, if not the server's. ARGV[2]: the id the crawl must have, if any.

local call = redis.call
local pack, unpack_struct = struct.pack, struct.unpack
local PREFIX = string.sub(KEYS[1], 1, -5)
local HORIZON, PATIENCE = 1, 30
local AT_ONCE = 1000

local function key(name) return PREFIX .. name end

-- Numbers in Lua's own notation lose digits.
local function text(number) return string.format('%.0f', number) end

-- Calls a command with many arguments, in pieces. They come in pairs, or one by one.
local function call_many(command, name, args)
  for first = 1, #args, AT_ONCE do
    call(command, name, unpack(args, first, math.min(first + AT_ONCE - 1, #args)))
  end
end

local FACTS = {'run', 'lifo', 'max_attempts', 'suspect_after', 'concurrency', 'delay', 'jitter', 'rules',
  'seeded', 'finished', 'accepted', 'waiting', 'leased', 'done', 'dead', 'suspects', 'seen', 'slots',
  'ids', 'served', 'workers', 'buckets', 'epoch', 'clock', 'offset', 'mode',
  'clearing'}
local RUN, PAUSE, STOP = 0, 1, 2
local PACKED_FACTS = '<' .. string.rep('d', #FACTS)

local crawl = {}
do
  local found = call('HMGET', KEYS[1], 'id', 'format', 'seeder', 'facts')
  crawl.id, crawl.format, crawl.seeder = found[1] or '', tonumber(found[2] or nil), found[3] or ''
  local facts = found[4] and {unpack_struct(PACKED_FACTS, found[4])} or {}
  for i, name in ipairs(FACTS) do crawl[name] = facts[i] or 0 end
end
if ARGV[2] ~= '' and ARGV[2] ~= crawl.id then return {'emptied'} end

local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local time = call('TIME')
  now = time[1] + time[2] / 1000000
end
now = now + crawl.offset

-- The time never goes back.
if now < crawl.clock then
  crawl.offset = crawl.offset + crawl.clock - now
  now = crawl.clock
end
crawl.clock = now

local function save_crawl()
  local facts = {}
  for i, name in ipairs(FACTS) do facts[i] = crawl[name] end
  call('HSET', KEYS[1], 'id', crawl.id, 'format', crawl.format, 'seeder', crawl.seeder,
    'facts', pack(PACKED_FACTS, unpack(facts)))
end

local function counts()
  return {crawl.accepted, crawl.waiting, crawl.leased, crawl.done, crawl.dead}
end

local function seeding(worker)
  if crawl.seeded == 1 then return 'done' end
  return crawl.seeder == worker and 'mine' or 'other'
end

local function offer_seeding(worker)
  if crawl.seeder == '' and crawl.seeded == 0 then crawl.seeder = worker end
end
