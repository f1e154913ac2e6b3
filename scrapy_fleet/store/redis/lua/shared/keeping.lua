-- What a batch brings for others to read: items, counters and state.

local function keep(kept, items, stats, state)
  local at = 1
  while at <= #items do
    kept[#kept + 1], at = unpack_struct('<I4c0', items, at)
  end
  call_many('RPUSH', key('items'), kept)
  at = 1
  while at <= #stats do
    local name, value
    name, value, at = unpack_struct('<Hc0d', stats, at)
    call('HSET', key('stats'), name, value + (call('HGET', key('stats'), name) or 0))
  end
  at = 1
  while at <= #state do
    local name, stays, value
    name, stays, value, at = unpack_struct('<Hc0BI4c0', state, at)
    if stays == 1 then call('HSET', key('state'), name, value) else call('HDEL', key('state'), name) end
  end
end
