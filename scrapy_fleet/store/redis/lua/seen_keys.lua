-- needs: crawl seen
-- Keys that were seen, bucket by bucket; nothing is changed.
--
-- ARGV[3]: the bucket to begin with. ARGV[4]: how many keys, at least, if there are as many.
-- Answers: 'ok', the bucket to go on with, or -1; keys as text.

local bucket, most, found = tonumber(ARGV[3]), tonumber(ARGV[4]), {}
while bucket < crawl.buckets and #found < most do
  for _, digits in ipairs(call('SMEMBERS', bucket_key(bucket))) do found[#found + 1] = digits end
  bucket = bucket + 1
end
return {'ok', bucket < crawl.buckets and bucket or -1, found}
