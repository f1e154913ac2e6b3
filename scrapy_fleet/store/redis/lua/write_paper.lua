-- needs: crawl papers
-- Here is a document that workers share; the crawl is made if it is not there.
--
-- ARGV, from the third: id for a new crawl, name, data. Answers: 'ok'.

if crawl.id == '' then make_crawl(ARGV[3]) end
call('HSET', key('papers'), ARGV[4], pack('<d', now) .. ARGV[5])
call('HDEL', key('makers'), ARGV[4])
save_crawl()
return {'ok'}
