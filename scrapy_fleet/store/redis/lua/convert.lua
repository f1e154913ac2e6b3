-- needs: crawl members
-- Know the same keys by another filter. A copy is made beside what is there, in pieces, and takes its place
-- at the end.
--
-- meta, `copies`: how many were begun; `copy`, packed: epoch, buckets and keys of a copy under way, and what
--   `seen` and `ids` were when it was begun.
--
-- ARGV, from the third: 'begin', 'copy' or 'end'; the filter to be, packed (see seen.lua); to copy: keys, packed
-- as marks are.
-- Answers: 'ok', and 1 if there is something to copy; 'in use' while live workers are in the crawl; 'no keys' if
-- the filter has none; 'changed' if the crawl was used since the copy was begun, or another was begun.

local COPY, FAR = '<ddddd', 4294967296

local step, to = ARGV[3], ARGV[4]
local copy
do
  local kept = call('HGET', KEYS[1], 'copy')
  if kept then
    copy = {}
    copy.epoch, copy.buckets, copy.seen, copy.was_seen, copy.was_ids = unpack_struct(COPY, kept)
  end
end
if crawl.id == '' then return {'ok', 0} end
if any_alive('') then return {'in use'} end

local function save_copy()
  call('HSET', KEYS[1], 'copy', pack(COPY, copy.epoch, copy.buckets, copy.seen, copy.was_seen, copy.was_ids))
end

if step == 'copy' then
  if not copy then return {'changed'} end
  -- What puts keys into a filter is led to believe that the copy is the crawl's.
  crawl.filter, crawl.epoch, crawl.buckets, crawl.seen = to, copy.epoch, copy.buckets, copy.seen
  -- needs: seen
  local at = 1
  while at <= #ARGV[5] do
    local ending, digits
    ending, digits, at = unpack_struct('<I4Bc0', ARGV[5], at)
    see(ending, digits)
  end
  copy.buckets, copy.seen = crawl.buckets, crawl.seen
  save_copy()
  return {'ok', 0}
end

-- needs: seen
if step == 'end' then
  if not copy or copy.was_seen ~= crawl.seen or copy.was_ids ~= crawl.ids then return {'changed'} end
  call('HDEL', KEYS[1], 'copy')
  forget_seen()
  set_filter(to)
  crawl.epoch, crawl.buckets, crawl.seen = copy.epoch, copy.buckets, copy.seen
  save_crawl()
  return {'ok', 0}
end

local kind = unpack_struct('<B', to)
if filter.kind == BLOOM and kind ~= OFF then return {'no keys'} end
if kind == OFF or crawl.seen == 0 then
  forget_seen()
elseif filter.kind ~= ROLLING and kind == ROLLING then
  -- All that was seen is its first generation.
  call('HSET', KEYS[1], 'generations',
    pack('<dddddB', crawl.epoch, crawl.buckets, crawl.seen, now, now, 0))
elseif filter.kind ~= kind and not (filter.kind == OFF and kind == EXACT) then
  if copy then throw_away(copy) end
  -- Far from those of generations to come, and never one that may still be in the trash.
  local epoch = FAR * call('HINCRBY', KEYS[1], 'copies', 1)
  copy = {epoch = epoch, buckets = 1, seen = 0, was_seen = crawl.seen, was_ids = crawl.ids}
  save_copy()
  save_crawl()
  return {'ok', 1}
end
set_filter(to)
save_crawl()
return {'ok', 0}
