-- What a batch says of leases. Tokens that the worker does not hold are passed over.

-- How many downloads a worker has under way, by slot; read when it is asked for.
local function downloads_of(worker)
  local mine = {of = false, count = 0, changed = {}}

  function mine.read()
    if mine.of then return end
    mine.of = {}
    local flat = call('HGETALL', key('running:' .. worker))
    for i = 1, #flat, 2 do mine.of[flat[i]] = tonumber(flat[i + 1]) end
    mine.count = #flat / 2
  end

  function mine.add(slot, number)
    mine.read()
    mine.of[slot] = (mine.of[slot] or 0) + number
    mine.changed[slot] = true
  end

  function mine.save()
    local set, gone = {}, {}
    for slot in pairs(mine.changed) do
      if mine.of[slot] == 0 then
        gone[#gone + 1] = slot
      else
        set[#set + 1] = slot
        set[#set + 1] = mine.of[slot]
      end
    end
    call_many('HSET', key('running:' .. worker), set)
    call_many('HDEL', key('running:' .. worker), gone)
  end

  return mine
end

-- Samples, outcomes and releases; `tokens` are all that they name. The items to keep.
local function settle(worker, facts, mine, tokens, samples, outcomes, releases)
  local kept = {}
  if tokens == '' then return kept end
  local held, changed, gone = {}, {}, {}
  do
    local names, slot_names = {}, {}
    for at = 1, #tokens, 8 do names[#names + 1] = string.sub(tokens, at, at + 7) end
    for first = 1, #names, AT_ONCE do
      local last = math.min(first + AT_ONCE - 1, #names)
      for i, packed in ipairs(call('HMGET', key('leases:' .. worker), unpack(names, first, last))) do
        if packed then
          local lease = read_lease(packed)
          held[names[first + i - 1]] = lease
          slot_names[#slot_names + 1] = lease.slot
        end
      end
    end
    find_slots(slot_names)
  end
  local function stop(lease)
    if lease.running == 1 then mine.add(lease.slot, -1) end
  end
  local function leave_hand(token, lease)
    stop(lease)
    held[token], changed[token] = nil, nil
    gone[#gone + 1] = token
    if token == facts.alone then facts.alone = '' end
    return end_lease(lease)
  end

  local at = 1
  while at <= #samples do
    local token, latency
    token, latency, at = unpack_struct('<c8d', samples, at)
    local lease = held[token]
    if lease and lease.running == 1 then
      stop(lease)
      lease.running, changed[token] = 0, lease
      local slot = slot_of(lease.slot)
      slot.active = slot.active - 1
      if latency >= 0 then
        local old = slot.latency < 0 and latency or slot.latency
        slot.latency = old + 0.3 * (latency - old)
      end
    end
  end
  at = 1
  while at <= #outcomes do
    local token, dead, reason, count
    token, dead, reason, count, at = unpack_struct('<c8BI4c0I4', outcomes, at)
    local lease = held[token]
    for _ = 1, count do
      local item
      item, at = unpack_struct('<I4c0', outcomes, at)
      if lease then kept[#kept + 1] = item end
    end
    if lease then
      local slot = leave_hand(token, lease)
      if dead == 1 then
        die(slot, lease, reason)
      else
        slot.done, crawl.done = slot.done + 1, crawl.done + 1
      end
    end
  end
  at = 1
  while at <= #releases do
    local token
    token, at = unpack_struct('<c8', releases, at)
    local lease = held[token]
    if lease then
      local slot = leave_hand(token, lease)
      wait(slot, lease)
    end
  end
  local rewritten = {}
  for token, lease in pairs(changed) do
    rewritten[#rewritten + 1] = token
    rewritten[#rewritten + 1] = write_lease(lease)
  end
  call_many('HSET', key('leases:' .. worker), rewritten)
  call_many('HDEL', key('leases:' .. worker), gone)
  return kept
end
