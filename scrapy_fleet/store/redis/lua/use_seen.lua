-- needs: crawl seen
-- Settle how keys are known; the crawl is made if it is not there.
--
-- ARGV, from the third: id for a new crawl, the filter, packed (see seen.lua).
-- Answers: 'ok'; or 'differs' and what is settled.

if crawl.clearing == 1 then return {'clearing'} end
if crawl.id == '' then make_crawl(ARGV[3]) end
if crawl.filter ~= '' and not is_like(ARGV[4]) then return {'differs', crawl.filter} end
if crawl.filter ~= ARGV[4] then set_filter(ARGV[4]) end
save_crawl()
return {'ok'}
