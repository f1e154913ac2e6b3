-- needs: crawl seen
-- Blocks of a Bloom filter; nothing is changed.
--
-- ARGV, from the third: the number of the first, how many. Answers: 'ok', their bits ('' where there are none).

local found = {}
for number = tonumber(ARGV[3]), ARGV[3] + ARGV[4] - 1 do
  found[#found + 1] = call('GET', crawl.prefix .. pack('<I4', number)) or ''
end
return {'ok', found}
