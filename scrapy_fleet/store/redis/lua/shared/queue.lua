-- A queue of items that is not part of any crawl.
--
-- KEYS[1]: LIST, its items, the newest at the end. Every item begins with a mark of 8 bytes that no other
--   has, by which a call that is repeated is known.
-- KEYS[1] .. ':hand': STRING, the item that was popped last, until it is known to have arrived.
-- ARGV[1]: 'fifo' or 'lifo'. ARGV[2]: the mark of the last item that has arrived, or ''.

local call = redis.call
local fifo = ARGV[1] == 'fifo'
local hand = KEYS[1] .. ':hand'
local held = call('GET', hand)
if held and string.sub(held, 1, 8) == ARGV[2] then
  call('DEL', hand)
  held = false
end

local function size() return call('LLEN', KEYS[1]) + (held and 1 or 0) end
