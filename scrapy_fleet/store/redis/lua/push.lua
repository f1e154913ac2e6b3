-- needs: crawl
-- Queue entries from outside of any worker; the crawl is made if it is not there.
--
-- ARGV, from the third: id for a new crawl; packed lists: groups (rank, slot) that entries name by position,
-- entries, keys to mark as seen.
-- Answers: 'ok', known positions (packed). While a clear is to be gone on with, 'clearing'.

if crawl.clearing == 1 then return {'clearing'} end
if crawl.id == '' then make_crawl(ARGV[3]) end
-- needs: politeness slots waiting seen adding
local known = add_entries(ARGV[4], ARGV[5])
mark_keys(ARGV[6])
save_slots()
save_crawl()
return {'ok', known}
