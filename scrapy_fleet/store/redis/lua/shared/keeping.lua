-- What a batch brings for others to read: items, counters and state.

local function add_stats(stats)
  local names, values, sums, at = {}, {}, {}, 1
  while at <= #stats do
    local last = #names + 1
    names[last], values[last], at = unpack_struct('<Hc0d', stats, at)
  end
  for first = 1, #names, AT_ONCE do
    local found = call('HMGET', key('stats'), unpack(names, first, math.min(first + AT_ONCE - 1, #names)))
    for i, old in ipairs(found) do
      sums[#sums + 1] = names[first + i - 1]
      sums[#sums + 1] = values[first + i - 1] + (old or 0)
    end
  end
  call_many('HSET', key('stats'), sums)
end

local function keep(kept, items, stats, state)
  local at = 1
  while at <= #items do
    kept[#kept + 1], at = unpack_struct('<I4c0', items, at)
  end
  if #kept > 0 then
    local before = call('HINCRBY', KEYS[1], 'items', #kept) - #kept
    for i, item in ipairs(kept) do call('XADD', key('items'), text(before + i) .. '-0', 'item', item) end
  end
  if stats ~= '' then add_stats(stats) end
  at = 1
  while at <= #state do
    local name, stays, value
    name, stays, value, at = unpack_struct('<Hc0BI4c0', state, at)
    if stays == 1 then call('HSET', key('state'), name, value) else call('HDEL', key('state'), name) end
  end
end

-- Beside the crawl there may be lists and hashes for other programs: their keys are KEYS[2] and following, and
-- `kinds` has a letter for each, what it must be: 'l' a list, 'h' a hash. What is wrong with them, if anything
-- is: it must be known before the first change, since a script that breaks leaves what it has done.
local function wrong_beside(kinds)
  local named = {l = 'list', h = 'hash'}
  for i = 2, #KEYS do
    local kind = redis.pcall('TYPE', KEYS[i])
    if kind.err then return KEYS[i] .. ': ' .. kind.err end
    local wanted = named[string.sub(kinds, i - 1, i - 1)]
    if kind.ok ~= 'none' and kind.ok ~= wanted then
      return KEYS[i] .. ' is a ' .. kind.ok .. ', not a ' .. wanted
    end
  end
end

local function write_beside(writing)
  local lists, at = {}, 1
  while at <= #writing do
    local which, how, field, value
    which, how, field, value, at = unpack_struct('<HBHc0I4c0', writing, at)
    if how == 0 then
      lists[which] = lists[which] or {}
      lists[which][#lists[which] + 1] = value
    elseif how == 1 then
      -- What is there may be no number: then it stays.
      redis.pcall('HINCRBYFLOAT', KEYS[which], field, value)
    else
      local old = how > 2 and tonumber(call('HGET', KEYS[which], field) or '')
      if not old or (how == 3 and tonumber(value) > old) or (how == 4 and tonumber(value) < old) then
        call('HSET', KEYS[which], field, value)
      end
    end
  end
  for which, values in pairs(lists) do call_many('RPUSH', KEYS[which], values) end
end
