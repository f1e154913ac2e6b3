-- needs: crawl
-- Queue entries from outside of any worker; the crawl is made if it is not there.
--
-- ARGV, from the third: id for a new crawl; how keys are known, if there are any and that is not settled (packed,
-- see seen.lua); packed lists: groups (rank, slot) that entries name by position,
-- entries, keys to mark as seen.
-- Answers: 'ok', known positions (packed). While a clear is to be gone on with, 'clearing'.

if crawl.clearing == 1 then return {'clearing'} end
if crawl.id == '' then make_crawl(ARGV[3]) end
if crawl.filter == '' and ARGV[4] ~= '' then
  crawl.filter = ARGV[4]
  call('HSET', KEYS[1], 'filter', crawl.filter)
end
-- needs: politeness slots waiting seen adding
local known = add_entries(ARGV[5], ARGV[6])
mark_keys(ARGV[7])
if ARGV[4] ~= '' then save_seen() end
save_slots()
save_crawl()
return {'ok', known}
