-- What a batch says of leases. Tokens that the worker does not hold are passed over.

local SPARE = 65536

-- How many downloads a worker has under way, and spare leases, by slot; read when it is asked for.
local function downloads_of(worker)
  local mine = {of = false, spares = {}, count = 0, changed = {}}

  function mine.read()
    if mine.of then return end
    mine.of = {}
    local flat = call('HGETALL', key('running:' .. worker))
    for i = 1, #flat, 2 do
      local number = tonumber(flat[i + 1])
      if number >= SPARE then
        mine.spares[flat[i]] = math.floor(number / SPARE)
        number = number % SPARE
      end
      mine.of[flat[i]] = number
    end
    mine.count = #flat / 2
  end

  function mine.add(slot, number)
    mine.read()
    mine.of[slot] = (mine.of[slot] or 0) + number
    mine.changed[slot] = true
  end

  function mine.add_spares(slot, number)
    mine.add(slot, 0)
    mine.spares[slot] = (mine.spares[slot] or 0) + number
  end

  function mine.save()
    local set, gone = {}, {}
    for slot in pairs(mine.changed) do
      local number = mine.of[slot] + SPARE * (mine.spares[slot] or 0)
      if number == 0 then
        gone[#gone + 1] = slot
      else
        set[#set + 1] = slot
        set[#set + 1] = number
      end
    end
    call_many('HSET', key('running:' .. worker), set)
    call_many('HDEL', key('running:' .. worker), gone)
  end

  return mine
end

-- What was learnt about slots otherwise than by leases.
local function take_notices(notices)
  local at = 1
  while at <= #notices do
    local name, distance, failed, status, retry_after
    name, distance, failed, status, retry_after, at = unpack_struct('<Hc0dHc0Hd', notices, at)
    local slot = slot_of(name)
    local before = slot.delay
    local rules = polite()
    rules.learn(slot, rules.noticed, distance, failed, status, retry_after)
    if slot.delay > before then rules.announce(slot) end
  end
end

-- What is needed of most leases, from where LEASE has it: what of its download is known, and its slot.
local function glance(packed)
  local low, high = string.byte(packed, 21, 22)
  return {packed = packed, running = string.byte(packed, 3),
    slot = string.sub(packed, 23, 22 + low + 256 * high)}
end

-- How late a lease began: what it did not need of its slot's leeway is given back.
local function begin(lease, late)
  local slot = find_slot(lease.slot)
  if slot.leeway == 0 or run_at_of(lease.packed) ~= slot.newest then return end
  slot = slot_of(lease.slot)
  slot.next_at = slot.next_at + (math.min(late, slot.leeway) - slot.leeway)
  slot.leeway = 0
end

local function with_running(packed, running)
  return string.sub(packed, 1, 2) .. (running == OVER and '\0' or '\1') .. string.sub(packed, 4)
end

-- Starts, samples, outcomes and releases; `tokens` are all that they name. The items to keep, and what is to be written
-- beside the crawl.
local function settle(worker, facts, mine, tokens, starts, samples, outcomes, releases)
  local kept, beside = {}, {}
  if tokens == '' then return kept, beside end
  local held, changed, gone = {}, {}, {}
  do
    local names, slot_names = {}, {}
    for at = 1, #tokens, 8 do names[#names + 1] = string.sub(tokens, at, at + 7) end
    for first = 1, #names, AT_ONCE do
      local last = math.min(first + AT_ONCE - 1, #names)
      for i, packed in ipairs(call('HMGET', key('leases:' .. worker), unpack(names, first, last))) do
        if packed then
          local lease = glance(packed)
          held[names[first + i - 1]] = lease
          if not slots[lease.slot] then slot_names[#slot_names + 1] = lease.slot end
        end
      end
    end
    find_slots(slot_names)
  end
  local function stop(lease)
    if lease.running == RUNNING then mine.add(lease.slot, -1)
    elseif lease.running == WAITS then mine.add_spares(lease.slot, -1) end
  end
  local function leave_hand(token, lease)
    stop(lease)
    held[token], changed[token] = nil, nil
    gone[#gone + 1] = token
    if token == facts.alone then facts.alone = '' end
    return end_lease(lease)
  end

  for at = 1, #starts, 16 do
    local token, late = unpack_struct('<c8d', starts, at)
    if held[token] then begin(held[token], late) end
  end
  local at = 1
  while at <= #samples do
    local token, latency, status, more
    local retry_after, failed, heir = 0, '', ''
    token, latency, status, more, at = unpack_struct('<c8dHB', samples, at)
    if more > 0 then retry_after, failed, heir, at = unpack_struct('<dHc0c8', samples, at) end
    local lease = held[token]
    if lease and lease.running == RUNNING then
      local slot = slot_of(lease.slot)
      local spare = held[heir]
      if spare and spare.running == WAITS and spare.slot == lease.slot then
        spare.running, changed[heir] = RUNNING, spare
        mine.add_spares(lease.slot, -1)
      else
        stop(lease)
        slot.active = slot.active - 1
      end
      lease.running, changed[token] = OVER, lease
      if latency >= 0 then
        local old = slot.latency < 0 and latency or slot.latency
        slot.latency = old + 0.3 * (latency - old)
      end
      -- Most samples change nothing else.
      if slot.manners or crawl.auto == 1 or failed ~= '' or status == 429 or status == 503 then
        local rules = polite()
        rules.learn(slot, rules.sampled, latency, status, retry_after, failed, rules.least_delay(slot))
      end
    end
  end
  at = 1
  while at <= #outcomes do
    local token, more
    token, more, at = unpack_struct('<c8B', outcomes, at)
    local lease, dead, count = held[token], nil, 0
    if more % 2 == 1 then dead, at = unpack_struct('<I4c0', outcomes, at) end
    if more % 4 >= 2 then count, at = unpack_struct('<I4', outcomes, at) end
    for _ = 1, count do
      local item
      item, at = unpack_struct('<I4c0', outcomes, at)
      if lease then kept[#kept + 1] = item end
    end
    if more >= 4 then
      local writing
      writing, at = unpack_struct('<I4c0', outcomes, at)
      if lease then beside[#beside + 1] = writing end
    end
    if lease then
      local slot = leave_hand(token, lease)
      if dead then
        die(slot, read_lease(lease.packed), dead)
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
      wait(slot, read_lease(lease.packed))
    end
  end
  local rewritten = {}
  for token, lease in pairs(changed) do
    rewritten[#rewritten + 1] = token
    rewritten[#rewritten + 1] = with_running(lease.packed, lease.running)
  end
  call_many('HSET', key('leases:' .. worker), rewritten)
  call_many('HDEL', key('leases:' .. worker), gone)
  return kept, beside
end
