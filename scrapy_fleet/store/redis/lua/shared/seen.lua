-- What was seen: 64-bit keys in many small sets of integers, which take 8 bytes a key and little more
-- while they have at most 512 members (set-max-intset-entries). Keys come as decimal text, since numbers
-- in Lua have 53 bits, with their ending, the number of the last nine characters, which chooses the bucket.
--
-- seen:<epoch>:<bucket, four bytes>: SET, keys. There are `buckets` of them, one more for every FILL
--   keys: one bucket at a time is split in two (linear hashing), so no call ever moves more than a
--   bucket's keys.
-- trash: HASH, epoch -> buckets of it that are still to be deleted: those of earlier runs.

local FILL = 210

-- The greatest power of two that is not above the number of buckets.
local base = 1
while base * 2 <= crawl.buckets do base = base * 2 end

local SEEN = key('seen:' .. crawl.epoch .. ':')

local function bucket_key(bucket) return SEEN .. pack('<I4', bucket) end

local function bucket_of(ending)
  local bucket = ending % (2 * base)
  return bucket < crawl.buckets and bucket or bucket - base
end

-- Split one bucket in two.
local function grow()
  local to = crawl.buckets
  local from, moved = bucket_key(to - base), {}
  for _, digits in ipairs(call('SMEMBERS', from)) do
    local ending = math.abs(tonumber(string.sub(digits, -9)))
    if ending % (2 * base) == to then moved[#moved + 1] = digits end
  end
  call_many('SREM', from, moved)
  call_many('SADD', bucket_key(to), moved)
  crawl.buckets = to + 1
  if crawl.buckets == 2 * base then base = crawl.buckets end
end

-- Mark a key as seen: whether it is new.
local function see(ending, digits)
  local new = call('SADD', bucket_key(bucket_of(ending)), digits)
  crawl.seen = crawl.seen + new
  if crawl.seen > FILL * crawl.buckets then grow() end
  return new == 1
end

local function forget_seen()
  call('HSET', key('trash'), crawl.epoch, crawl.buckets)
  crawl.epoch, crawl.buckets, crawl.seen, crawl.trash = crawl.epoch + 1, 1, 0, crawl.trash + 1
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
