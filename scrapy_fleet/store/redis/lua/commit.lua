-- needs: crawl slots waiting holding seen leasing
-- Apply a batch, in the order that store/base.py gives, and lease entries.
--
-- ARGV, from the third: worker, seq, flags (letters: s seeded, l leave, f finish), want, and packed lists:
-- groups (rank, slot) that adds name by position, adds, marks, all tokens that are named below, samples,
-- outcomes, releases, items, stats, state, and dice (numbers for jitter).
-- Answers: 'ok', now, counts, seeding, known positions (packed), leases (packed: token, lease),
-- retry_in, dice used.

local worker, seq, flags, want = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local groups, adds, marks, tokens, samples = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local outcomes, releases, items, stats, state = ARGV[12], ARGV[13], ARGV[14], ARGV[15], ARGV[16]
local dice = ARGV[17]
local seeded, leave, finish =
  string.find(flags, 's') ~= nil, string.find(flags, 'l') ~= nil, string.find(flags, 'f') ~= nil

local member_facts = alive(worker)
if not member_facts then return {'given up'} end

if seq <= member_facts.seq then
  local told, known = {}, ''
  if seq == member_facts.seq then
    known = call('HGET', key('worker:' .. worker), 'known')
    local flat = call('HGETALL', key('leases:' .. worker))
    for i = 1, #flat, 2 do
      if math.floor(unpack_struct('<d', flat[i]) / COUNT_IN_BATCH) == seq then
        tell(told, flat[i], flat[i + 1])
      end
    end
  end
  save_crawl()
  return {'ok', string.format('%.17g', now), counts(), seeding(worker), known, table.concat(told), '', 0}
end

-- Adds. Lists are written once for all entries of a group.
local known = {}
do
  local lines, at = {}, 1
  while at <= #groups do
    local rank, slot
    rank, slot, at = unpack_struct('<dHc0', groups, at)
    lines[#lines + 1] = {rank = rank, slot = slot, newest_first = crawl.lifo == 1 and rank % 2 == 0}
  end
  local position, used, names = 0, {}, {}
  at = 1
  while at <= #adds do
    local ending, digits, group, payload
    ending, digits, group, payload, at = unpack_struct('<dBc0I4I4c0', adds, at)
    if digits == '' or see(digits, ending) then
      local line = lines[group + 1]
      if not line.entries then
        line.entries = {}
        used[#used + 1], names[#names + 1] = line, line.slot
      end
      crawl.ids = crawl.ids + 1
      line.entries[#line.entries + 1] = pack('<d', line.newest_first and -crawl.ids or crawl.ids) .. payload
    else
      known[#known + 1] = pack('<I4', position)
    end
    position = position + 1
  end
  find_slots(names)
  for _, line in ipairs(used) do
    local slot = slot_of(line.slot)
    enter(slot, line.rank, #line.entries)
    crawl.accepted, crawl.finished = crawl.accepted + #line.entries, 0
    call_many(line.newest_first and 'LPUSH' or 'RPUSH', waiting_key(slot, line.rank), line.entries)
  end
  at = 1
  while at <= #marks do
    local ending, digits
    ending, digits, at = unpack_struct('<dBc0', marks, at)
    see(digits, ending)
  end
end

-- How many downloads the worker has under way, by slot; read when it is asked for.
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

-- Samples, outcomes and releases of tokens that the worker holds.
local new_items = {}
if tokens ~= '' then
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
    if token == member_facts.alone then member_facts.alone = '' end
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
      if lease then new_items[#new_items + 1] = item end
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
end

offer_seeding(worker)
if seeded and crawl.seeder == worker then crawl.seeded, crawl.seeder = 1, '' end
local seeds = seeding(worker)

-- What is kept for others.
do
  local at = 1
  while at <= #items do
    new_items[#new_items + 1], at = unpack_struct('<I4c0', items, at)
  end
  call_many('RPUSH', key('items'), new_items)
  at = 1
  while at <= #stats do
    local name, value
    name, value, at = unpack_struct('<Hc0d', stats, at)
    call('HSET', key('stats'), name, value + (call('HGET', key('stats'), name) or 0))
  end
  at = 1
  while at <= #state do
    local name, kept, value
    name, kept, value, at = unpack_struct('<Hc0BI4c0', state, at)
    if kept == 1 then call('HSET', key('state'), name, value) else call('HDEL', key('state'), name) end
  end
end

local leases, retry, rolled = '', '', 0
known = table.concat(known)
if leave then
  forget(worker, wait)
  if finish and crawl.seeded == 1 and crawl.waiting + crawl.leased == 0 then crawl.finished = 1 end
else
  if want > 0 then
    local out = start_leasing(worker, seq, dice, mine)
    place(touched)
    if member_facts.alone == '' then
      wake()
      local suspect, since
      if crawl.suspects > 0 then suspect, since = oldest_suspect() end
      if suspect and call('EXISTS', key('leases:' .. worker)) == 0 then
        local slot = slot_of(suspect.name)
        member_facts.alone = out.give(slot, take_suspect(slot), 1)
      elseif not (suspect and since <= now - PATIENCE) then
        mine.read()
        serve(out, open_slots(want, mine), want)
      end
      out.save()
    end
    leases, rolled = table.concat(out.told), out.rolled
    if out.count < want then
      place(touched)
      retry = retry_in()
    end
  end
  mine.save()
  call('HSET', key('worker:' .. worker), 'seq', seq, 'known', known, 'alone', member_facts.alone)
end
save_slots()
save_crawl()
return {'ok', string.format('%.17g', now), counts(), seeds, known, leases, retry, rolled}
