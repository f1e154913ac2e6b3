-- needs: queue
-- Puts an item at the end, unless it is there: the call may be repeated.
--
-- ARGV[3]: the item. Answers: how many items there are.

if call('LINDEX', KEYS[1], -1) ~= ARGV[3] then call('RPUSH', KEYS[1], ARGV[3]) end
return {size()}
