-- needs: crawl
-- A producer holds the crawl open, or is done; the crawl is made if it is not there.
--
-- producers: ZSET, names of those that hold the crawl open, by when they are given up; meta has their number.
--
-- ARGV, from the third: id for a new crawl, producer, for how many seconds (0: it is done). Answers: 'ok'.

if crawl.id == '' then make_crawl(ARGV[3]) end
local ttl = tonumber(ARGV[5])
if ttl > 0 then
  call('ZADD', key('producers'), now + ttl, ARGV[4])
else
  call('ZREM', key('producers'), ARGV[4])
end
crawl.feeding = call('ZCARD', key('producers'))
save_crawl()
return {'ok'}
