-- needs: queue
-- Answers: how many items there are, and the next one if there is one.

local item = held or call('LINDEX', KEYS[1], fifo and 0 or -1)
if not item then return {0} end
return {size(), item}
