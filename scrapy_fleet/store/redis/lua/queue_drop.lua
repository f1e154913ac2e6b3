-- needs: queue
-- Takes items out that were pushed, though the answer to that did not arrive.
--
-- ARGV, from the third: the items. Answers: how many items there are.

for n = 3, #ARGV do call('LREM', KEYS[1], -1, ARGV[n]) end
return {size()}
