-- needs: queue
-- Hands out the next item; the same again, as long as it has not arrived.
--
-- Answers: how many items are left, and the item if there is one.

local item = held or call(fifo and 'LPOP' or 'RPOP', KEYS[1])
if not item then return {0} end
call('SET', hand, item)
return {call('LLEN', KEYS[1]), item}
