-- needs: queue
-- Answers: 0, for that is what is left.

call('DEL', KEYS[1], hand)
return {0}
