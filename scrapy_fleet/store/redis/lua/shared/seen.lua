-- What was seen: 64-bit keys in many small sets of integers, which take 8 bytes a key and little more
-- while they have at most 512 members (set-max-intset-entries). Keys come as decimal text, since numbers
-- in Lua have 53 bits, with their 32 lowest bits beside.
--
-- seen:<epoch>:<bucket>: SET, keys. There are `buckets` of them, one more for every FILL keys: one
--   bucket at a time is split in two (linear hashing), so no call ever moves more than a bucket's keys.
-- trash: HASH, epoch -> buckets of it that are still to be deleted: those of earlier runs.

local FILL = 210

local base = 1
while base * 2 <= crawl.buckets do base = base * 2 end

local SEEN = key('seen:' .. crawl.epoch .. ':')

local function bucket_of(bits)
  local bucket = bits % (2 * base)
  return bucket < crawl.buckets and bucket or bucket - base
end

-- Mark a key as seen: whether it is new.
local function see(digits, bits)
  local new = call('SADD', SEEN .. bucket_of(bits), digits)
  crawl.seen = crawl.seen + new
  return new == 1
end

-- Some of the lowest bits of a number in decimal digits, exactly.
local function low_bits(digits, modulus)
  local sign = string.sub(digits, 1, 1) == '-' and -1 or 1
  local low = tonumber(string.sub(digits, -9))
  local high = tonumber(string.sub(digits, 1, -10)) or 0
  if low >= 0 then low = sign * low end
  return ((high % modulus) * (1e9 % modulus) + low) % modulus
end

local function grow()
  while crawl.seen > FILL * crawl.buckets do
    local from, to = crawl.buckets - base, crawl.buckets
    local moved = {}
    for _, digits in ipairs(call('SMEMBERS', SEEN .. from)) do
      if low_bits(digits, 2 * base) == to then moved[#moved + 1] = digits end
    end
    call_many('SREM', SEEN .. from, moved)
    call_many('SADD', SEEN .. to, moved)
    crawl.buckets = to + 1
    if crawl.buckets == 2 * base then base = crawl.buckets end
  end
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
