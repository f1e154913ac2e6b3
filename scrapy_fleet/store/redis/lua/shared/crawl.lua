-- The crawl itself. All its keys begin as KEYS[1] does, which is `<prefix>meta`, and share its hash tag.
--
-- meta: HASH, what there is one of: `id` (made with the crawl: another one, or none, means that the store
--   was emptied), `format`, `seeder` (the worker that runs the seeds, or ''), `time`, packed: the latest time
--   that is known, and what is added to the server's clock, which may be set back, or be another one
--   after a failover; `policy`, packed: what of the newest plan politeness.lua reads; `filter`, `generations`,
--   `copy` and `copies`: how keys are known (see seen.lua, rolling.lua, convert.lua); and `facts`, packed
--   numbers: `run`; the newest plan's `lifo`, `max_attempts`, `suspect_after`, its common rule `concurrency`,
--   `delay`, `jitter`, and how many slots have their own, `rules`; `seeded` and `finished`; counters
--   `accepted` = `waiting` + `leased` + `done` + `dead`, `suspects` (of those waiting), `seen`, `slots`;
--   numbers last given: `ids` (entries), `served` (turns), `workers`; `buckets` and `epoch` (see seen.lua);
--   `mode` (what the fleet is told: RUN, PAUSE or STOP), `clearing` (1: a clear is to be gone on with),
--   `trash` (see seen.lua: how many epochs are in it);
--   `auto` (1: AutoThrottle is on), `overrides` (how many there are) and `held`, see politeness.lua;
--   `feeding` (producers that hold the crawl open, see feed.lua).
-- stats: HASH, counters of the spider's own: name -> number.
-- state: HASH, spider.state: name -> packed value.
-- items: STREAM, packed items under the field `item`; their ids are `<number>-0`. It has a group for each group
--   of consumers. meta has, as `items`, the last number that was given.
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

local FORMAT = 6
local RUN, PAUSE, STOP = 0, 1, 2
local FACTS = '<dddddddddddddddddddddddddddddd'

local crawl, clock
do
  local found = call('HMGET', KEYS[1], 'id', 'format', 'seeder', 'facts', 'time', 'policy', 'filter')
  local format = tonumber(found[2] or FORMAT)
  if format ~= FORMAT then return {'format', format, FORMAT} end
  local run, lifo, max_attempts, suspect_after, concurrency, delay, jitter, rules, seeded, finished,
    accepted, waiting, leased, done, dead, suspects, seen, slots, ids, served, workers, buckets, epoch,
    mode, clearing, trash, auto, overrides, held, feeding =
    unpack_struct(FACTS, found[4] or string.rep('\0', 8 * (#FACTS - 1)))
  -- Made with all its fields, since a table that grows is slow.
  crawl = {id = found[1] or '', seeder = found[3] or '', policy = found[6] or '',
    filter = found[7] or '', base = 1, prefix = '', offset = 0, run = run,
    lifo = lifo, max_attempts = max_attempts, suspect_after = suspect_after, concurrency = concurrency,
    delay = delay, jitter = jitter, rules = rules, seeded = seeded, finished = finished, accepted = accepted,
    waiting = waiting, leased = leased, done = done, dead = dead, suspects = suspects, seen = seen,
    slots = slots, ids = ids, served = served, workers = workers, buckets = buckets, epoch = epoch,
    mode = mode, clearing = clearing, trash = trash, auto = auto, overrides = overrides, held = held,
    feeding = feeding}
  clock = 0
  if found[5] then clock, crawl.offset = unpack_struct('<dd', found[5]) end
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
local set_back = now < clock
if set_back then
  crawl.offset = crawl.offset + clock - now
  now = clock
end

local function make_crawl(id)
  crawl.id, crawl.run, crawl.epoch, crawl.buckets = id, 1, 1, 1
  call('HSET', KEYS[1], 'id', id, 'format', FORMAT)
end

local function save_time() call('HSET', KEYS[1], 'time', pack('<dd', now, crawl.offset)) end

local function save_crawl()
  local facts = pack(FACTS, crawl.run, crawl.lifo, crawl.max_attempts, crawl.suspect_after,
    crawl.concurrency, crawl.delay, crawl.jitter, crawl.rules, crawl.seeded, crawl.finished, crawl.accepted,
    crawl.waiting, crawl.leased, crawl.done, crawl.dead, crawl.suspects, crawl.seen, crawl.slots, crawl.ids,
    crawl.served, crawl.workers, crawl.buckets, crawl.epoch, crawl.mode, crawl.clearing, crawl.trash,
    crawl.auto, crawl.overrides, crawl.held, crawl.feeding)
  call('HSET', KEYS[1], 'seeder', crawl.seeder, 'facts', facts, 'time', pack('<dd', now, crawl.offset))
end

local function counts()
  return {crawl.accepted, crawl.waiting, crawl.leased, crawl.done, crawl.dead, crawl.feeding}
end

local function seeding(worker)
  if crawl.seeded == 1 then return 'done' end
  return crawl.seeder == worker and 'mine' or 'other'
end

local function is_seeder_wanted() return crawl.seeder == '' and crawl.seeded == 0 end

local function offer_seeding(worker)
  if is_seeder_wanted() then crawl.seeder = worker end
end
