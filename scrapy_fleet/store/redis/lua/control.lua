-- needs: crawl
-- Tell the fleet to run, to pause or to stop; the crawl is made if it is not there.
--
-- ARGV, from the third: id for a new crawl, mode. Answers: 'ok'.

if crawl.id == '' then make_crawl(ARGV[3]) end
crawl.mode = tonumber(ARGV[4])
save_crawl()
return {'ok'}
