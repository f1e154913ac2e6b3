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
