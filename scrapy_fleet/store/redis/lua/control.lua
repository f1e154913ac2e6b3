-- needs: crawl
-- Tell the fleet to run, to pause or to stop; the crawl is made if it is not there.
--
-- ARGV, from the third: id for a new crawl, format, mode. Answers: 'ok'.

if crawl.id == '' then
  crawl.id, crawl.format, crawl.run, crawl.epoch, crawl.buckets = ARGV[3], tonumber(ARGV[4]), 1, 1, 1
end
crawl.mode = tonumber(ARGV[5])
save_crawl()
return {'ok'}
