-- needs: crawl streaming
-- Hand items to a consumer of a group; the crawl and the group are made if they are not there.
--
-- When an item was taken is kept with it, by the crawl's clock: the server tells it as the time since then, by
-- its own.
--
-- ARGV, from the third: id for a new crawl, group, consumer, how many at most, after how many seconds an item
-- that another took is given again. Answers: 'ok', numbers and data in turn.

local group, consumer, most, ttl = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
if crawl.id == '' then
  make_crawl(ARGV[3])
  save_crawl()
end
local is_new = true
for _, each in ipairs(groups()) do
  if each.name == group then is_new = false end
end
if is_new then call('XGROUP', 'CREATE', STREAM, group, '0', 'MKSTREAM') end
if most < 1 then return {'ok', {}} end

local told = {}
local function take(ids)
  local claim = {STREAM, group, consumer, '0'}
  for _, id in ipairs(ids) do claim[#claim + 1] = id end
  claim[#claim + 1], claim[#claim + 2], claim[#claim + 3] = 'TIME', text(math.floor(now * 1000)), 'JUSTID'
  call('XCLAIM', unpack(claim))
end

local time = call('TIME')
local server_now = time[1] * 1000 + math.floor(time[2] / 1000)
local again, at = {}, '-'
repeat
  local held = call('XPENDING', STREAM, group, at, '+', AT_ONCE)
  for _, entry in ipairs(held) do
    local id, owner, taken = entry[1], entry[2], server_now - entry[3]
    if #again < most and (owner == consumer or now * 1000 - taken >= ttl * 1000) then
      again[#again + 1] = id
    end
    at = '(' .. id
  end
until #held < AT_ONCE or #again == most
local gone = {}
for _, id in ipairs(again) do
  local found = call('XRANGE', STREAM, id, id)
  -- Somebody else may have cut the stream.
  if #found == 0 then gone[#gone + 1] = id end
  tell(told, found)
end
if #gone > 0 then call('XACK', STREAM, group, unpack(gone)) end
if #again > #gone then take(again) end

local left = most - #told / 2
if left > 0 then
  local new = call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', left, 'STREAMS', STREAM, '>')
  if new then
    local ids = {}
    for _, entry in ipairs(new[1][2]) do ids[#ids + 1] = entry[1] end
    tell(told, new[1][2])
    take(ids)
  end
end
return {'ok', told}
