-- What was seen: 64-bit keys in many small sets of integers, which take 8 bytes a key and little more
-- while they have at most 512 members (set-max-intset-entries). Keys come as decimal text, since numbers
-- in Lua have 53 bits, with the number beside that chooses the bucket: the last nine characters' value.
--
-- seen:<epoch>:<bucket>: SET, keys. There are `buckets` of them, one more for every FILL keys: one
--   bucket at a time is split in two (linear hashing), so no call ever moves more than a bucket's keys.
-- trash: HASH, epoch -> buckets of it that are still to be deleted: those of earlier runs.

local FILL = 210

local base = 1
while base * 2 <= crawl.buckets do base = base * 2 end

local SEEN = key('seen:' .. crawl.epoch .. ':')

local function bucket_of(ending)
  local bucket = ending % (2 * base)
  return bucket < crawl.buckets and bucket or bucket - base
end

-- Split one bucket in two.
local function grow()
  local from, to = crawl.buckets - base, crawl.buckets
  local moved = {}
  for _, digits in ipairs(call('SMEMBERS', SEEN .. from)) do
    if tonumber(string.sub(digits, -9)) % (2 * base) == to then moved[#moved + 1] = digits end
  end
  call_many('SREM', SEEN .. from, moved)
  call_many('SADD', SEEN .. to, moved)
  crawl.buckets = to + 1
  if crawl.buckets == 2 * base then base = crawl.buckets end
end

-- Mark a key as seen: whether it is new.
local function see(digits, ending)
  local new = call('SADD', SEEN .. bucket_of(ending), digits)
  crawl.seen = crawl.seen + new
  if crawl.seen > FILL * crawl.buckets then grow() end
  return new == 1
end

local function forget_seen()
  call('HSET', key('trash'), crawl.epoch, crawl.buckets)
  crawl.epoch, crawl.buckets, crawl.seen = crawl.epoch + 1, 1, 0
end

-- Delete some of what is forgotten.
local function sweep()
  local trash = call('HGETALL', key('trash'))
  if not trash[1] then return end
  local epoch, left = trash[1], tonumber(trash[2])
  local names = {}
  for bucket = math.max(0, left - 500), left - 1 do
    names[#names + 1] = key('seen:' .. epoch .. ':' .. bucket)
  end
  call('UNLINK', unpack(names))
  if left > 500 then call('HSET', key('trash'), epoch, left - 500)
  else call('HDEL', key('trash'), epoch) end
end
