-- needs: crawl seen
-- A page of keys; nothing is changed. Buckets are read whole, one after another; those that are split meanwhile
-- have their keys in later ones, and so have keys that go over to a newer generation.
--
-- ARGV, from the third: epoch and bucket to begin with (0: the first), how many keys, about.
-- Answers: 'ok', epoch and bucket to go on with (0: that was all), keys. 'no keys' if a filter has none.

local epoch, bucket, most = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if crawl.id == '' then return {'ok', '0', 0, {}} end
if filter.kind == BLOOM then return {'no keys'} end
local keys = {}
for _, it in ipairs(filter.kind == ROLLING and filter.generations or {crawl}) do
  if it.epoch >= epoch then
    for number = it.epoch == epoch and bucket or 0, it.buckets - 1 do
      if #keys >= most then return {'ok', text(it.epoch), number, keys} end
      for _, digits in ipairs(call('SMEMBERS', it.prefix .. pack('<I4', number))) do
        keys[#keys + 1] = digits
      end
    end
  end
end
return {'ok', '0', 0, keys}
