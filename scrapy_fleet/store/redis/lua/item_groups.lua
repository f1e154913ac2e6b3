-- needs: crawl streaming
-- What there is to do with groups of consumers.
--
-- ARGV[3] and what follows: 'ack', group, numbers; 'list'; 'drop', group; or 'trim', how many at most: remove
-- the first items as far as all groups have acknowledged them.
-- Answers: 'ok', and how many; of 'list', for each group its name, how many items are left for it, and how many
-- its consumers have.

local what, group = ARGV[3], ARGV[4]
local found = groups()
local first = 0
do
  local entries = #found > 0 and call('XRANGE', STREAM, '-', '+', 'COUNT', 1) or {}
  if #entries > 0 then first = number_of(entries[1][1]) end
end

if what == 'list' then
  local last = tonumber(call('HGET', KEYS[1], 'items') or 0)
  local told = {}
  for i, each in ipairs(found) do
    local left = first == 0 and 0 or last - math.max(each.last, first - 1)
    told[i] = {each.name, left, each.pending}
  end
  return {'ok', told}
end

-- Consumers that have nothing and have not been seen for long are forgotten: each process has its own name.
local function forget_consumers(name)
  for _, flat in ipairs(call('XINFO', 'CONSUMERS', STREAM, name)) do
    local consumer = {}
    for i = 1, #flat, 2 do consumer[flat[i]] = flat[i + 1] end
    if consumer.pending == 0 and consumer.idle > 3600000 then
      call('XGROUP', 'DELCONSUMER', STREAM, name, consumer.name)
    end
  end
end

if what == 'trim' then
  local done
  for _, each in ipairs(found) do
    forget_consumers(each.name)
    local own = each.last
    if each.pending > 0 then own = number_of(call('XPENDING', STREAM, each.name)[2]) - 1 end
    done = math.min(done or own, own)
  end
  if not done or first == 0 or done < first then return {'ok', 0} end
  return {'ok', call('XTRIM', STREAM, 'MINID', text(math.min(done, first + ARGV[4] - 1) + 1))}
end

for _, each in ipairs(found) do
  if each.name == group then
    if what == 'drop' then return {'ok', call('XGROUP', 'DESTROY', STREAM, group)} end
    local ids = {}
    for i = 5, #ARGV do ids[#ids + 1] = ARGV[i] .. '-0' end
    return {'ok', #ids > 0 and call('XACK', STREAM, group, unpack(ids)) or 0}
  end
end
return {'ok', 0}
