-- What was seen, by the filter that the crawl has: see seen.py. Keys come as decimal text, since numbers in Lua
-- have 53 bits, with their ending, the number of the last nine characters; or, for a Bloom filter alone, as what
-- is made of them there.
--
-- meta, `filter`: packed (FILTER), and for each layer that a Bloom filter may get (LAYER) its hashes and
--   blocks. Not there: it is not settled.
-- Exact, and off: 64-bit keys in many small sets of integers, which take 8 bytes a key and little more while
--   they have at most 512 members (set-max-intset-entries). There are `buckets` of them, one more for every FILL
--   keys: one bucket at a time is split in two (linear hashing), so no call ever moves more than a
--   bucket's keys, and no number of keys has to be known before.
-- seen:<epoch>:<bucket, four bytes>: SET, keys; or STRING, a block of a Bloom filter, whose layers have `buckets`
--   of them; or SET, keys of the generation of a rolling filter that has this epoch.
-- trash: HASH, epoch -> buckets of it that are still to be deleted: those of earlier runs and generations.

local EXACT, BLOOM, ROLLING, OFF = 0, 1, 2, 3
local FILL = 210
local FILTER, LAYER = '<Bdddd', '<Bd'
local FILTER_SIZE, LAYER_SIZE = 33, 9

-- The crawl itself is the family of buckets of an exact filter; each generation is one, too. What a
-- family has: `epoch`, `buckets`, `seen` (its keys), and, from here, `base`, the greatest power of two that
-- is not above the number of its buckets, `prefix`, and `keys`, those of its buckets that were asked for.
local function family(it)
  it.base = 1
  while it.base * 2 <= it.buckets do it.base = it.base * 2 end
  it.prefix, it.keys = key('seen:' .. text(it.epoch) .. ':'), {}
  return it
end

local function bucket_key(it, ending)
  local bucket = ending % (2 * it.base)
  if bucket >= it.buckets then bucket = bucket - it.base end
  local found = it.keys[bucket]
  if not found then
    found = it.prefix .. pack('<I4', bucket)
    it.keys[bucket] = found
  end
  return found
end

-- Split one bucket in two.
local function grow(it)
  local to, base = it.buckets, it.base
  local from, moved = it.prefix .. pack('<I4', to - base), {}
  local sub, double = string.sub, 2 * base
  for _, digits in ipairs(call('SMEMBERS', from)) do
    local ending = sub(digits, -9) + 0
    if (ending < 0 and -ending or ending) % double == to then moved[#moved + 1] = digits end
  end
  call_many('SREM', from, moved)
  call_many('SADD', it.prefix .. pack('<I4', to), moved)
  it.buckets = to + 1
  if it.buckets == 2 * base then it.base = it.buckets end
end

-- Put a key into a family: whether it was not there.
local function put(it, ending, digits)
  local new = call('SADD', bucket_key(it, ending), digits)
  it.seen = it.seen + new
  if it.seen > FILL * it.buckets then grow(it) end
  return new == 1
end

family(crawl)
local filter = {kind = EXACT}
if crawl.filter ~= '' then
  local kind, capacity, err, window, hot = unpack_struct(FILTER, crawl.filter)
  filter = {kind = kind, capacity = capacity, error = err, window = window, hot = hot}
end

-- For each kind: `see` marks a key as seen and says whether it is new; `has` says whether it is seen; `lose`
-- says whether it was, and forgets it; `save_seen` writes what changed besides `crawl`.
local see, has, lose, save_seen

if filter.kind == EXACT or filter.kind == OFF then
  see = function(ending, digits)
    -- As `put` does it: this is done for every entry.
    local bucket = ending % (2 * crawl.base)
    if bucket >= crawl.buckets then bucket = bucket - crawl.base end
    local new = call('SADD', crawl.keys[bucket] or bucket_key(crawl, ending), digits)
    if new == 0 then return false end
    crawl.seen = crawl.seen + 1
    if crawl.seen > FILL * crawl.buckets then grow(crawl) end
    return true
  end
  has = function(ending, digits) return call('SISMEMBER', bucket_key(crawl, ending), digits) == 1 end
  lose = function(ending, digits)
    local lost = call('SREM', bucket_key(crawl, ending), digits)
    crawl.seen = crawl.seen - lost
    return lost == 1
  end
  save_seen = function() end
elseif filter.kind == BLOOM then
-- needs: bloom
else
-- needs: rolling
end

local function throw_away(it)
  call('HSET', key('trash'), text(it.epoch), it.buckets)
  crawl.trash = crawl.trash + 1
end

-- Nothing is seen any more, by whatever filter.
local function forget_seen()
  if filter.kind == ROLLING then
    for _, it in ipairs(filter.generations) do throw_away(it) end
    call('HDEL', KEYS[1], 'generations')
  else
    throw_away(crawl)
  end
  local copy = call('HGET', KEYS[1], 'copy')
  if copy then
    local epoch, buckets = unpack_struct('<dd', copy)
    throw_away({epoch = epoch, buckets = buckets})
    call('HDEL', KEYS[1], 'copy')
  end
  crawl.epoch, crawl.buckets, crawl.seen = crawl.epoch + 1, 1, 0
end

-- Whether keys may go on to be known by the stored filter, if another is asked for. Times may change.
local function is_like(packed)
  local kind, capacity, err = unpack_struct(FILTER, packed)
  return filter.kind == kind and (kind ~= BLOOM or (filter.capacity == capacity and filter.error == err))
end

-- From now on keys are known by this filter. (The functions above are still those of the one before.)
local function set_filter(packed)
  crawl.filter = packed
  if packed == '' then call('HDEL', KEYS[1], 'filter') else call('HSET', KEYS[1], 'filter', packed) end
end

-- Delete some of what is forgotten.
local function sweep()
  if crawl.trash == 0 then return end
  local trash = call('HGETALL', key('trash'))
  local epoch, left = trash[1], tonumber(trash[2])
  local names = {}
  for bucket = math.max(0, left - AT_ONCE), left - 1 do
    names[#names + 1] = key('seen:' .. epoch .. ':') .. pack('<I4', bucket)
  end
  call('UNLINK', unpack(names))
  if left > AT_ONCE then
    call('HSET', key('trash'), epoch, left - AT_ONCE)
  else
    call('HDEL', key('trash'), epoch)
    crawl.trash = crawl.trash - 1
  end
end
