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

  function mine.save()
    local set, gone = {}, {}
    for slot in pairs(mine.changed) do
      local number = (mine.of[slot] or 0) + SPARE * (mine.spares[slot] or 0)
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

-- How late a lease began: what it did not need of its slot's leeway is given back, and what it needed more is taken.
local function begin(head, late)
  local slot = find_slot(head.name)
  if slot.leeway == 0 or head.run_at ~= slot.newest then return end
  slot = slot_of(head.name)
  slot.next_at = slot.next_at + (math.min(late, math.max(slot.leeway, now - head.run_at)) - slot.leeway)
  slot.leeway = 0
end

-- A lease will not begin: its slot is free when it was for this one.
local function give_back(head)
  local slot = slot_of(head.name)
  if slot.leeway > 0 and head.run_at == slot.newest then slot.next_at, slot.leeway = head.run_at, 0 end
end

-- The hands of which a batch names leases, by their numbers; the slots of these leases are brought in one go. `named`
-- has, for each hand, its number and the places.
local function find_hands(worker, named)
  local hands, names, numbers, places, slot_names = {}, {}, {}, {}, {}
  local at, count = 1, 0
  while at <= #named do
    count = count + 1
    names[count] = string.sub(named, at, at + 7)
    numbers[count], places[count], at = unpack_struct('<dHc0', named, at)
  end
  for first = 1, count, AT_ONCE do
    local found =
      call('HMGET', key('leases:' .. worker), unpack(names, first, math.min(first + AT_ONCE - 1, count)))
    for i = first, first + #found - 1 do
      local packed = found[i - first + 1]
      if packed then
        local hand = read_hand(names[i], packed)
        hands[numbers[i]] = hand
        for j = 1, #places[i] do
          -- Often one head is all there is.
          if hand.unread == 0 then break end
          local place = string.byte(places[i], j) + 1
          local ref = hand.refs[place]
          if ref and not hand.heads[ref] and hand.states[place] ~= GONE then
            slot_names[#slot_names + 1] = head_of(hand, place).name
          end
        end
      end
    end
  end
  find_slots(slot_names)
  return hands
end

local function save_hands(worker, hands)
  local kept, gone = {}, {}
  for _, hand in pairs(hands) do
    if hand.left == 0 then
      gone[#gone + 1] = hand.name
    elseif hand.changed then
      kept[#kept + 1] = hand.name
      kept[#kept + 1] = write_hand(hand)
    end
  end
  call_many('HSET', key('leases:' .. worker), kept)
  call_many('HDEL', key('leases:' .. worker), gone)
  call_many('HDEL', key('raws:' .. worker), gone)
end

-- Starts, samples, outcomes and releases; `named` are all leases in them. `done`, written like that, are outcomes with
-- nothing more to be said. The items to keep, and what is to be written beside the crawl.
local function settle(worker, facts, mine, named, starts, samples, done, outcomes, releases)
  local kept, beside = {}, {}
  if named == '' then return kept, beside end
  local hands = find_hands(worker, named)
  mine.read()
  local running, spares, changed = mine.of, mine.spares, mine.changed

  -- The hand and place of a lease that is held, or nil.
  local function find(token)
    local place = token % COUNT_IN_BATCH
    local hand = hands[token - place]
    local state = hand and hand.states[place + 1]
    if state and state ~= GONE then return hand, place + 1 end
  end
  for at = 1, #starts, 16 do
    local token, late = unpack_struct('<dd', starts, at)
    local hand, place = find(token)
    if hand then begin(head_of(hand, place), late) end
  end
  local at, last = 1, #samples
  while at <= last do
    local token, heir, latency, status, more
    local retry_after, failed = 0, ''
    token, heir, latency, status, more, at = unpack_struct('<dddHB', samples, at)
    if more == 1 then retry_after, failed, at = unpack_struct('<dHc0', samples, at) end
    local place = token % COUNT_IN_BATCH
    local hand = hands[token - place]
    if hand and hand.states[place + 1] == RUNNING then
      local slot = slot_at(hand, place + 1)
      local name = slot.name
      hand.states[place + 1], hand.changed = OVER, true
      place = heir % COUNT_IN_BATCH
      hand = hands[heir - place]
      if hand and hand.states[place + 1] == WAITS and head_of(hand, place + 1).name == name then
        hand.states[place + 1], hand.changed = RUNNING, true
        spares[name], changed[name] = (spares[name] or 0) - 1, true
      else
        running[name], changed[name] = (running[name] or 0) - 1, true
        slot.active = slot.active - 1
      end
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
  while at <= #done do
    local number, places
    number, places, at = unpack_struct('<dHc0', done, at)
    local hand = hands[number]
    places = hand and {string.byte(places, 1, -1)} or {}
    for j = 1, #places do
      local place = places[j] + 1
      if (hand.states[place] or GONE) ~= GONE then
        local slot = end_lease(hand, place, mine)
        slot.done, crawl.done = slot.done + 1, crawl.done + 1
      end
    end
  end
  at = 1
  while at <= #outcomes do
    local token, more, dead
    local count = 0
    token, more, at = unpack_struct('<dB', outcomes, at)
    local hand, place = find(token)
    if more % 2 == 1 then dead, at = unpack_struct('<I4c0', outcomes, at) end
    if more % 4 >= 2 then count, at = unpack_struct('<I4', outcomes, at) end
    for _ = 1, count do
      local item
      item, at = unpack_struct('<I4c0', outcomes, at)
      if hand then kept[#kept + 1] = item end
    end
    if more >= 4 then
      local writing
      writing, at = unpack_struct('<I4c0', outcomes, at)
      if hand then beside[#beside + 1] = writing end
    end
    if hand then
      local slot = end_lease(hand, place, mine)
      if dead then
        die(slot, entry_at(worker, hand, place), dead)
      else
        slot.done, crawl.done = slot.done + 1, crawl.done + 1
      end
    end
  end
  for i = 1, #releases, 8 do
    local hand, place = find((unpack_struct('<d', releases, i)))
    if hand then
      if hand.states[place] == RUNNING then give_back(head_of(hand, place)) end
      wait(end_lease(hand, place, mine), entry_at(worker, hand, place))
    end
  end
  save_hands(worker, hands)
  if facts.alone ~= '' and call('EXISTS', key('leases:' .. worker)) == 0 then facts.alone = '' end
  return kept, beside
end
