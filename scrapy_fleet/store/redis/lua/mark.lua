-- needs: crawl seen
-- Mark keys as seen; the crawl is made if it is not there.
--
-- ARGV[3]: id for a new crawl. ARGV[4]: keys, packed as marks are. Answers: 'ok', how many were new.

if crawl.clearing == 1 then return {'clearing'} end
if crawl.id == '' then
  make_crawl(ARGV[3])
  SEEN = key('seen:' .. crawl.epoch .. ':')
end
local before, at = crawl.seen, 1
while at <= #ARGV[4] do
  local ending, digits
  ending, digits, at = unpack_struct('<I4Bc0', ARGV[4], at)
  see(ending, digits)
end
save_crawl()
return {'ok', crawl.seen - before}
