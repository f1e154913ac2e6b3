-- needs: crawl seen
-- Add the bits of blocks that were kept elsewhere to a Bloom filter.
--
-- ARGV, from the third: how many keys there were, then the number of each block and its bits. Answers: 'ok'.

for i = 4, #ARGV, 2 do
  local name, loaded = crawl.prefix .. pack('<I4', tonumber(ARGV[i])), key('loaded')
  if call('EXISTS', name) == 1 then
    call('SET', loaded, ARGV[i + 1])
    call('BITOP', 'OR', name, name, loaded)
    call('DEL', loaded)
  else
    call('SET', name, ARGV[i + 1])
  end
end
crawl.seen = math.max(crawl.seen, tonumber(ARGV[3]))
save_crawl()
return {'ok'}
