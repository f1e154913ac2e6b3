-- needs: crawl members politeness slots waiting holding
-- Look at entries; nothing is changed.
--
-- ARGV, from the third: what ('waiting', 'leased' or 'dead'), of whom (a slot, for waiting), after
-- (how many to skip, or for dead the id to begin after), how many at most.
-- Answers: 'ok', rows, packed: ord (its size is the id), rank, attempts, slot, worker, reason, payload.

local what, of, after, most = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local rows = {}
local function show(e, slot, worker, reason)
  local payload = string.sub(e.raw, 6)
  rows[#rows + 1] = pack('<ddHHc0Hc0I4c0I4c0', ord_of(e.raw), e.rank, e.attempts, #slot, slot,
    #worker, worker, #reason, reason, #payload, payload)
end

-- Those of one rank: what came back is put among those that were never leased.
local function show_rank(slot, rank)
  local list, back = waiting_key(slot, rank), {}
  for _, packed in ipairs(call('ZRANGE', back_key(slot, rank), 0, -1)) do
    back[#back + 1] = read_entry(packed)
  end
  local length = call('LLEN', list)
  local skipped = after
  if #back == 0 then after = math.max(0, after - length) else skipped = 0 end
  local returned = 1
  local function pass(e)
    if after > 0 and #back > 0 then after = after - 1 elseif #rows < most then show(e, slot.name, '', '') end
  end
  for _, raw in ipairs(call('LRANGE', list, skipped, skipped + after + most - #rows - 1)) do
    local ord = ord_of(raw)
    while back[returned] and ord_of(back[returned].raw) < ord do
      pass(back[returned])
      returned = returned + 1
    end
    pass({attempts = 0, rank = rank, raw = raw})
  end
  for i = returned, #back do pass(back[i]) end
end

if what == 'waiting' then
  local slot = find_slot(of)
  if slot then
    local ranks = slot.queued > 0 and {slot.top} or {}
    for _, rank in ipairs(call('ZRANGE', key('ranks:' .. of), 0, -1)) do ranks[#ranks + 1] = tonumber(rank) end
    for _, rank in ipairs(ranks) do
      if #rows < most then show_rank(slot, rank) end
    end
    if #rows < most then
      local suspects = call('ZRANGE', key('suspects:' .. of), after, after + most - #rows - 1)
      for _, packed in ipairs(suspects) do show(read_entry(packed, 17), of, '', '') end
    end
  end
elseif what == 'leased' then
  for _, worker in ipairs(call('ZRANGE', key('workers'), 0, -1)) do
    each_lease(worker, function(hand, place)
      show(entry_at(worker, hand, place), head_of(hand, place).name, worker, '')
    end)
  end
else
  local found = call('ZRANGEBYSCORE', key('dead'), '(' .. text(after), '+inf', 'LIMIT', 0, most)
  for _, packed in ipairs(found) do
    local slot, reason, e = read_dead(packed)
    show(e, slot, '', reason)
  end
end
return {'ok', table.concat(rows)}
