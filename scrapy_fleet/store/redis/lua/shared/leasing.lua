-- Who is next: hands out entries to one worker, as store/base.py says.

local TURNS_AT_ONCE = 500

-- One lease as the worker gets it.
local function tell(told, token, packed)
  local last = #told
  told[last + 1], told[last + 2], told[last + 3] = token, pack('<I4', #packed), packed
end

local function start_leasing(worker, seq, dice, mine)
  local out = {count = 0, leases = {}, told = {}, rolled = 0}

  local function roll()
    out.rolled = out.rolled + 1
    local at = out.rolled * 8 - 7
    return at < #dice and unpack_struct('<d', dice, at) or 0.5
  end

  function out.give(slot, e, alone)
    local run_at = math.max(now, slot.next_at)
    if slot.delay > 0 then
      local factor = slot.jitter > 0 and 1 - slot.jitter + 2 * slot.jitter * roll() or 1
      slot.next_at = run_at + slot.delay * factor
    end
    crawl.served = crawl.served + 1
    slot.turn = SERVED + crawl.served
    slot.leased, slot.active = slot.leased + 1, slot.active + 1
    crawl.leased = crawl.leased + 1
    mine.add(slot.name, 1)
    local token, last = pack('<d', seq * COUNT_IN_BATCH + out.count), 2 * out.count
    out.count = out.count + 1
    local packed = pack(LEASE, e.ord, e.attempts, 1, alone, run_at, e.rank, #slot.name, slot.name)
      .. e.payload
    out.leases[last + 1], out.leases[last + 2] = token, packed
    tell(out.told, token, packed)
    return token
  end

  function out.save()
    call_many('HSET', key('leases:' .. worker), out.leases)
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
  local due = call('ZRANGEBYSCORE', key('timed'), '-inf', now + HORIZON, 'LIMIT', 0, TURNS_AT_ONCE)
  find_slots(due)
  local woken = {}
  for i, name in ipairs(due) do woken[i] = slot_of(name) end
  place(woken)
end

-- The slots that may be served to a worker, the first ones first, with the room they have for it.
local function open_slots(want, mine)
  local workers = call('ZCARD', key('workers'))
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
local function serve(out, found, want)
  local queues, ranks = {}, {}
  local function queue(slot)
    local line = queues[slot.top]
    if not line then
      line = {}
      queues[slot.top] = line
      local at = #ranks + 1
      while at > 1 and ranks[at - 1] < slot.top do at = at - 1 end
      table.insert(ranks, at, slot.top)
    end
    line[#line + 1] = slot
  end
  for _, slot in ipairs(found) do queue(slot) end
  while #ranks > 0 do
    local rank = table.remove(ranks)
    local line, first = queues[rank], 1
    while line[first] do
      if out.count == want then return end
      local slot = slot_of(line[first].name)
      first = first + 1
      out.give(slot, take(slot), 0)
      slot.room = slot.room - 1
      if slot.queued > 0 and slot.room > 0 and is_due(slot) then queue(slot) end
    end
    queues[rank] = nil
  end
end

-- Seconds until a slot that waits for its time may be asked again, as text, or ''.
local function retry_in()
  local soonest
  local names = call('ZRANGE', key('suspects'), 0, -1)
  for _, name in ipairs(names) do
    local slot = find_slot(name)
    if has_room(slot) and not is_due(slot) then soonest = math.min(soonest or slot.next_at, slot.next_at) end
  end
  -- What has no room any more is among them only after a change of plan.
  local timed = call('ZRANGEBYSCORE', key('timed'), '(' .. string.format('%.17g', now + HORIZON), '+inf',
    'LIMIT', 0, TURNS_AT_ONCE)
  for _, name in ipairs(timed) do
    local slot = find_slot(name)
    if has_room(slot) then
      soonest = math.min(soonest or slot.next_at, slot.next_at)
      break
    end
  end
  return soonest and string.format('%.17g', soonest - HORIZON - now) or ''
end
