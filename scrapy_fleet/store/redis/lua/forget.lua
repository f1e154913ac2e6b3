-- needs: crawl seen
-- Keys are not seen any more.
--
-- ARGV[3]: keys, packed as marks are. Answers: 'ok', how many were; 'no keys' if a filter cannot forget.

if crawl.id == '' then return {'ok', 0} end
if filter.kind == BLOOM then return {'no keys'} end
local lost, at = 0, 1
while at <= #ARGV[3] do
  local ending, digits
  ending, digits, at = unpack_struct('<I4Bc0', ARGV[3], at)
  if lose(ending, digits) then lost = lost + 1 end
end
save_seen()
save_crawl()
return {'ok', lost}
