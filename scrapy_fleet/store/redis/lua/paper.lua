-- needs: crawl papers
-- A document that workers share, or the task of making it; the crawl is made if it is not there.
--
-- ARGV, from the third: id for a new crawl, name, worker, how old it may be, for how long others make it.
-- Answers: 'ok', 'data', age and data; or 'ok', and 'mine' or 'other'.

local name, worker, max_age, patience = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local written, data = read_paper('papers', name)
if written and now - written <= max_age then
  return {'ok', 'data', string.format('%.17g', now - written), data}
end
local since, maker = read_paper('makers', name)
if not since or now - since >= patience then
  if crawl.id == '' then make_crawl(ARGV[3]) end
  maker = worker
  call('HSET', key('makers'), name, pack('<d', now) .. worker)
  save_crawl()
end
return {'ok', maker == worker and 'mine' or 'other'}
