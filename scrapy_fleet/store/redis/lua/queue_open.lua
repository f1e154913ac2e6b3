-- needs: queue
-- What was popped and has not arrived goes back to where it was.
--
-- Answers: how many items there are.

if held then
  call(fifo and 'LPUSH' or 'RPUSH', KEYS[1], held)
  call('DEL', hand)
  held = false
end
return {size()}
