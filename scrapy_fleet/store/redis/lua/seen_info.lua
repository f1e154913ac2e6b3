-- needs: crawl seen
-- What was seen, and what it takes; nothing is changed.
--
-- Answers: 'ok', the filter (packed, see seen.lua), how many keys, bytes, generations, seconds since a key of the
-- oldest was met ('' if there is none). Without a crawl, 'ok' alone.

local SAMPLES = 50

if crawl.id == '' then return {'ok'} end
local families = filter.kind == ROLLING and filter.generations or {crawl}
local bytes, oldest = 0, ''
for _, it in ipairs(families) do
  -- Buckets are much alike: some stand for all.
  local taken, step = 0, math.max(1, math.floor(it.buckets / SAMPLES))
  local sum = 0
  for number = 0, it.buckets - 1, step do
    local used = redis.pcall('MEMORY', 'USAGE', it.prefix .. pack('<I4', number))
    sum, taken = sum + (type(used) == 'number' and used or 0), taken + 1
  end
  bytes = bytes + math.floor(sum / taken * it.buckets)
  if it.last then oldest = math.max(oldest == '' and 0 or oldest, now - it.last) end
end
return {'ok', crawl.filter, crawl.seen, bytes, #families, oldest == '' and '' or string.format('%.17g', oldest)}
