-- needs: crawl seen
-- Which keys were seen; nothing is changed.
--
-- ARGV[3]: keys, packed as marks are. Answers: 'ok', a list of 1 or 0.

local found, at = {}, 1
while at <= #ARGV[3] do
  local ending, digits
  ending, digits, at = unpack_struct('<I4Bc0', ARGV[3], at)
  found[#found + 1] = crawl.id ~= '' and has(ending, digits) and 1 or 0
end
return {'ok', found}
