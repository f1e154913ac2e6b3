-- needs: crawl
-- Move what producers have put into a list, a set or a sorted set into the crawl, as tasks: from the left of a
-- list, the highest scores of a sorted set first. What has left one is in the other, whatever happens.
--
-- KEYS[2]: the producers' key. ARGV, from the third: id for a new crawl, how many tasks may wait in the crawl, the
-- byte that a task's payload begins with.
-- Answers: 'ok', how many were moved. While a clear is to be gone on with, 'clearing'.

if crawl.clearing == 1 then return {'clearing'} end
if crawl.id == '' then make_crawl(ARGV[3]) end
-- needs: politeness slots waiting seen adding
local slot = find_slot(TASKS)
local room = tonumber(ARGV[4]) - (slot and slot.queued + slot.suspects or 0)
if room < 1 then return {'ok', 0} end

local source, found = KEYS[2], {}
local kind = call('TYPE', source).ok
if kind == 'list' then
  found = call('LRANGE', source, 0, room - 1)
  call('LTRIM', source, #found, -1)
elseif kind == 'set' then
  found = call('SPOP', source, room)
elseif kind == 'zset' then
  found = call('ZREVRANGE', source, 0, room - 1)
  call('ZREMRANGEBYRANK', source, -#found, -1)
elseif kind ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. source .. ' is a ' .. kind .. '; tasks are read from a list, set or zset')
end
if #found == 0 then return {'ok', 0} end

local entries = {}
for i, data in ipairs(found) do
  entries[i] = pack('<HI4BI4', 0, 0, 0, #data + 1) .. ARGV[5] .. data
end
-- Of priority 0, in the order they came.
add_entries(pack('<dH', 1, #TASKS) .. TASKS, table.concat(entries))
save_slots()
save_crawl()
return {'ok', #found}
