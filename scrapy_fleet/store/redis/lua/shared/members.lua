-- The workers in the crawl.
--
-- workers: ZSET, ids of the workers in the crawl, by when they are given up if they stay silent.
-- worker:<id>: HASH, `number` in order of coming, `ttl`, `joined`, `host`, `pid`, `home`, `birth`; of its
--   last batch `seq` and `known` (packed positions); `alone`: '1' while it has a lease that must be its only
--   one; up to which number of slots that were held (see politeness.lua) it was told, with its last batch,
--   `told`, and before that, `heard`.

-- The worker is alive: its facts, or nil if it is not in the crawl.
local function alive(worker)
  local facts = call('HMGET', key('worker:' .. worker), 'ttl', 'seq', 'alone', 'told', 'heard')
  if not facts[1] then return nil end
  call('ZADD', key('workers'), now + facts[1], worker)
  return {seq = tonumber(facts[2]), alone = facts[3], told = tonumber(facts[4]),
    heard = tonumber(facts[5])}
end

-- Whether any worker, but for one, has been heard of within its time-to-live.
local function any_alive(but)
  local found = call('ZRANGEBYSCORE', key('workers'), '(' .. string.format('%.17g', now), '+inf',
    'LIMIT', 0, 2)
  return found[1] ~= nil and (found[1] ~= but or found[2] ~= nil)
end

-- Whether a worker that asks may get an entry now, a spare one of a slot that is full too, or be told when
-- to ask again.
local function may_be_served(worker, want)
  return want > 0 and crawl.mode == RUN and crawl.waiting > 0
    and (crawl.suspects > 0 or call('EXISTS', key('ready'), key('timed')) > 0
      or call('EXISTS', key('full'), key('running:' .. worker)) == 2)
end
