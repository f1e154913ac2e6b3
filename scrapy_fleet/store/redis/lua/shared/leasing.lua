-- Who is next: hands out entries to one worker, as store/base.py says.

local TURNS_AT_ONCE = 500

local function start_leasing(worker, seq, dice, mine)
  local out = {count = 0, hand = '', raws = '', rolled = 0, mannered = {}}
  local states, refs, heads, raws, sizes = {}, {}, {}, {}, {}
  mine.read()
  local downloads, spares, changed = mine.of, mine.spares, mine.changed

  local function roll()
    out.rolled = out.rolled + 1
    local at = out.rolled * 8 - 7
    return at < #dice and unpack_struct('<d', dice, at) or 0.5
  end

  -- Entries of a slot, as they were taken; if it has a delay, one.
  function out.give(slot, alone, running, entries, first, last, rank, attempts)
    local due = slot.held and due_at(slot) or slot.next_at
    local run_at = due > now and due or now
    local name, number = slot.name, last - first + 1
    if slot.delay > 0 or slot.manners then out.mannered[name] = slot end
    if slot.delay > 0 then
      local factor = slot.jitter > 0 and 1 - slot.jitter + 2 * slot.jitter * roll() or 1
      local pace = polite().pace_of(slot)
      slot.newest, slot.leeway = run_at, polite().leeway_of(pace)
      slot.next_at = run_at + math.max(slot.delay * factor, pace) + slot.leeway
    end
    crawl.served = crawl.served + number
    slot.turn = SERVED + crawl.served
    slot.leased, crawl.leased = slot.leased + number, crawl.leased + number
    changed[name] = true
    if running == RUNNING then
      slot.active = slot.active + number
      downloads[name] = (downloads[name] or 0) + number
    else
      spares[name] = (spares[name] or 0) + number
    end
    -- Most leases of a slot have the same head.
    if slot.run_at ~= run_at or slot.rank ~= rank or slot.running ~= running or attempts > 0 then
      slot.run_at, slot.rank, slot.running = attempts == 0 and run_at or false, rank, running
      slot.ref = #heads
      heads[slot.ref + 1] = pack(LEASE, attempts, running, alone, run_at, rank, #name, name)
    end
    local count, ref = out.count, slot.ref
    for i = first, last do
      local raw = entries[i]
      count = count + 1
      states[count], refs[count], raws[count], sizes[count] = running, ref, raw, #raw
    end
    out.count = count
  end

  function out.save()
    cut_lists()
    if out.count == 0 then return end
    local number = pack('<d', number_of_hand(seq))
    local at, begins = HAND_SIZE + 2 * out.count + PLACE_SIZE * #heads + 1, {}
    for i, head in ipairs(heads) do begins[i], at = at, at + #head end
    out.hand = pack(HAND, out.count, out.count, #heads) .. string.char(unpack(states)) .. string.char(unpack(refs))
      .. pack('<' .. string.rep('I4', #heads), unpack(begins)) .. table.concat(heads)
    out.raws = pack('<' .. string.rep('I4', out.count), unpack(sizes)) .. table.concat(raws)
    call('HSET', key('leases:' .. worker), number, out.hand)
    call('HSET', key('raws:' .. worker), number, out.raws)
  end

  return out
end

-- The slot whose suspect has waited longest, of those that may be served, and since when.
local function oldest_suspect()
  local found, since, id
  local names = call('ZRANGE', key('suspects'), 0, -1, 'WITHSCORES')
  for i = 1, #names, 2 do
    local at = tonumber(names[i + 1])
    if found and at > since then break end
    local slot = find_slot(names[i])
    if has_room(slot) and is_due(slot) then
      local first = string.sub(call('ZRANGE', key('suspects:' .. slot.name), 0, 0)[1], 1, 16)
      if not found or first < id then found, since, id = slot, at, first end
    end
  end
  return found, since
end

-- Slots whose time has come may be served.
local function wake()
  local due = call('ZRANGEBYSCORE', key('timed'), '-inf', now, 'LIMIT', 0, TURNS_AT_ONCE)
  find_slots(due)
  local woken = {}
  for i, name in ipairs(due) do woken[i] = slot_of(name) end
  place(woken)
end

-- The slots that may be served to a worker, the first ones first, with the room they have for it.
local function open_slots(want, mine, workers)
  local found = {}
  local names = call('ZRANGE', key('ready'), 0, want + mine.count - 1)
  for i, entry in ipairs(names) do names[i] = string.sub(entry, 17) end
  find_slots(names)
  for _, name in ipairs(names) do
    local slot = slots[name]
    slot.room = math.min(slot.concurrency - slot.active,
      math.ceil(slot.concurrency / workers) - (mine.of[name] or 0))
    if has_room(slot) and is_due(slot) then
      if slot.room > 0 and #found < want then found[#found + 1] = slot end
    else
      slot_of(name)
    end
  end
  return found
end

-- Serve slots by the rank of their first entry; those of equal rank take turns: who was served goes
-- to the end of the queue of its next entry's rank.
local function serve(out, found, want, running)
  local queues, ranks = {}, {}
  local function queue(slot)
    local rank = slot.boost and standing(slot) or slot.top
    local line = queues[rank]
    if not line then
      line = {}
      queues[rank] = line
      local at = #ranks + 1
      while at > 1 and ranks[at - 1] < rank do at = at - 1 end
      table.insert(ranks, at, rank)
    end
    line[#line + 1] = slot
  end
  local each = math.ceil(want / math.max(1, #found))
  for _, slot in ipairs(found) do queue(slot) end
  while #ranks > 0 do
    local rank = table.remove(ranks)
    local line, first = queues[rank], 1
    while line[first] do
      if out.count == want then return end
      local slot = line[first]
      first = first + 1
      touched[slot.name] = slot
      -- One that is alone in its line takes the next turns, too.
      local most = (line[first] or slot.delay > 0) and 1 or math.min(slot.room, want - out.count)
      local before = out.count
      out.give(slot, 0, running, take(slot, most, each))
      slot.room = slot.room - (out.count - before)
      if slot.queued > 0 and slot.room > 0 and is_due(slot) then queue(slot) end
    end
    queues[rank] = nil
  end
end

-- Slots of which the worker may have spares, in order, with how many.
local function spare_slots(mine, workers)
  local found = {}
  if crawl.rules == 0 and crawl.overrides == 0 and polite().all_wait() then return found end
  local names = {}
  for name, running in pairs(mine.of) do
    if running > (mine.spares[name] or 0) then names[#names + 1] = name end
  end
  find_slots(names)
  for _, name in ipairs(names) do
    local slot, running = slots[name], mine.of[name]
    local m = slot.manners
    if slot.queued > 0 and slot.suspects == 0 and slot.delay == 0 and due_at(slot) <= now
        and not (m and (m.lost == 1 or polite().is_probed(m)))
        and running <= math.ceil(slot.concurrency / workers) then
      slot.room = running - (mine.spares[name] or 0)
      found[#found + 1] = slot
    end
  end
  table.sort(found, function(a, b)
    local left, right = standing(a), standing(b)
    if left ~= right then return left < right end
    return a.turn < b.turn
  end)
  return found
end

-- What a worker must know of slots whose leases it gets, packed.
local function terms(mannered)
  local told = {}
  for name, slot in pairs(mannered) do
    local m = slot.manners
    local probe, lost = m and polite().is_probed(m) and 1 or 0, m and polite().loss_of(m) or ''
    told[#told + 1] = pack('<Hc0dBHc0', #name, name, polite().pace_of(slot), probe, #lost, lost)
  end
  return table.concat(told)
end

-- Seconds until a slot that waits for its time may be asked again, as text, or ''.
local function retry_in()
  local soonest
  local names = crawl.suspects > 0 and call('ZRANGE', key('suspects'), 0, -1) or {}
  for _, name in ipairs(names) do
    local slot = find_slot(name)
    if has_room(slot) and not is_due(slot) then soonest = math.min(soonest or opens_at(slot), opens_at(slot)) end
  end
  -- What has no room any more is among them only after a change of plan.
  local timed = call('ZRANGEBYSCORE', key('timed'), '(' .. string.format('%.17g', now), '+inf',
    'LIMIT', 0, TURNS_AT_ONCE)
  for _, name in ipairs(timed) do
    local slot = find_slot(name)
    if has_room(slot) then
      soonest = math.min(soonest or opens_at(slot), opens_at(slot))
      break
    end
  end
  return soonest and string.format('%.17g', soonest - now) or ''
end
