-- needs: crawl
-- Mark keys as seen without queueing anything; the crawl is made if it is not there.
--
-- ARGV, from the third: id for a new crawl; how keys are known, if that is not settled (packed, see seen.lua);
-- keys, packed as marks are. Answers: 'ok', how many were new.

if crawl.clearing == 1 then return {'clearing'} end
if crawl.id == '' then make_crawl(ARGV[3]) end
if crawl.filter == '' then
  crawl.filter = ARGV[4]
  call('HSET', KEYS[1], 'filter', crawl.filter)
end
-- needs: seen
local new, at = 0, 1
while at <= #ARGV[5] do
  local ending, digits
  ending, digits, at = unpack_struct('<I4Bc0', ARGV[5], at)
  if see(ending, digits) then new = new + 1 end
end
save_seen()
sweep()
save_crawl()
return {'ok', new}
