-- needs: crawl streaming
-- Items, oldest first.
--
-- ARGV, from the third: after which number, how many at most. Answers: 'ok', numbers and data in turn.

local told = {}
tell(told, call('XRANGE', STREAM, text(ARGV[3] + 1), '+', 'COUNT', ARGV[4]))
return {'ok', told}
