-- needs: crawl members
-- Apply a batch, in the order that store/base.py gives, and lease entries.
--
-- ARGV, from the third: worker, seq, flags (letters: s seeded, l leave, f finish), want, and packed lists:
-- groups (rank, slot) that adds name by position, adds, marks, all leases that are named below, samples,
-- notices, outcomes, releases, items, stats, state, and dice (numbers for jitter); then the worker's last
-- batch that was answered, what is to be written beside the crawl: how, and the kinds (see keeping.lua),
-- starts, which belong before the samples, and leases that are done, which belong before the outcomes.
-- Answers: 'ok', now, counts, seeding, known positions (packed), leases and their entries (see holding.lua),
-- retry_in, dice used, mode, terms of slots (packed, see leasing.lua), slots that were held. Or 'beside' and what
-- is wrong there, with nothing changed.

local worker, seq, flags, want = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local member_facts = alive(worker)
if not member_facts then return {'given up'} end
local behind = member_facts.seq < tonumber(ARGV[19])

-- Idle workers ask again and again where there is nothing to be had. They are answered in a third of the
-- time, without the functions of what follows.
local asks_only = not behind and seq > member_facts.seq and flags == ''
  and table.concat(ARGV, '', 7, 17) == '' and ARGV[20] == '' and member_facts.heard == crawl.held
if asks_only and not (set_back or is_seeder_wanted()) and not may_be_served(worker, want) then
  call('HSET', key('worker:' .. worker), 'seq', seq, 'known', '')
  return {'ok', string.format('%.17g', now), counts(), seeding(worker), '', '', '', '', 0, crawl.mode, '', {}}
end

-- What follows is a function of its own: what its functions take from above is then at hand, where Lua would
-- search for it each time, among all that any function takes.
local function apply()
-- needs: politeness slots waiting holding seen adding settling keeping leasing
if behind then return disown(worker) end

if seq <= member_facts.seq then
  local told, raws, known, mannered, held = '', '', '', {}, {}
  if seq == member_facts.seq then
    known = call('HGET', key('worker:' .. worker), 'known')
    -- Nothing has happened to what it got: it has said nothing since.
    local number = pack('<d', number_of_hand(seq))
    told = call('HGET', key('leases:' .. worker), number) or ''
    raws = call('HGET', key('raws:' .. worker), number) or ''
    local hand = told ~= '' and read_hand(number, told)
    for place = 1, hand and hand.count or 0 do
      local slot = find_slot(head_of(hand, place).name)
      if slot.delay > 0 or slot.manners then mannered[slot.name] = slot end
    end
    held = held_slots(worker, seq, member_facts.heard)
  end
  save_crawl()
  return {'ok', string.format('%.17g', now), counts(), seeding(worker), known, told, raws, '', 0,
    crawl.mode, terms(mannered), held}
end

local wrong = wrong_beside(ARGV[21])
if wrong then return {'beside', wrong} end
local seeded, leave, finish =
  string.find(flags, 's') ~= nil, string.find(flags, 'l') ~= nil, string.find(flags, 'f') ~= nil
local known = add_entries(ARGV[7], ARGV[8])
mark_keys(ARGV[9])
if ARGV[8] ~= '' or ARGV[9] ~= '' then save_seen() end
local mine = downloads_of(worker)
local kept, beside = settle(worker, member_facts, mine, ARGV[10], ARGV[22], ARGV[11], ARGV[23], ARGV[13], ARGV[14])
take_notices(ARGV[12])
local held = leave and {} or held_slots(worker, seq, member_facts.told)

offer_seeding(worker)
if seeded and crawl.seeder == worker then crawl.seeded, crawl.seeder = 1, '' end
local seeds = seeding(worker)

keep(kept, ARGV[15], ARGV[16], ARGV[17])
if #KEYS > 1 then
  beside[#beside + 1] = ARGV[20]
  write_beside(table.concat(beside))
end

local leases, raws, retry, rolled, told = '', '', '', 0, ''
if leave then
  forget(worker, wait)
  if finish and crawl.seeded == 1 and crawl.waiting + crawl.leased + crawl.feeding == 0 then
    crawl.finished = 1
  end
else
  if want > 0 and crawl.mode == RUN then
    local out = start_leasing(worker, seq, ARGV[18], mine)
    place(touched)
    if member_facts.alone == '' then
      wake()
      local suspect, since
      if crawl.suspects > 0 then suspect, since = oldest_suspect() end
      if suspect and call('EXISTS', key('leases:' .. worker)) == 0 then
        local slot = slot_of(suspect.name)
        out.give(slot, 1, RUNNING, take_suspect(slot))
        member_facts.alone = '1'
      elseif not (suspect and since <= now - PATIENCE) then
        local workers = call('ZCARD', key('workers'))
        serve(out, open_slots(want, mine, workers), want, RUNNING)
        if out.count < want and crawl.waiting > 0 then
          serve(out, spare_slots(mine, workers), want, WAITS)
        end
      end
      out.save()
    end
    leases, raws, rolled, told = out.hand, out.raws, out.rolled, terms(out.mannered)
    if out.count < want then
      place(touched)
      retry = retry_in()
    end
  end
  mine.save()
  call('HSET', key('worker:' .. worker), 'seq', seq, 'known', known, 'alone', member_facts.alone)
  if member_facts.heard < crawl.held then
    call('HSET', key('worker:' .. worker), 'told', crawl.held, 'heard', member_facts.told)
  end
end
save_slots()
save_crawl()
return {'ok', string.format('%.17g', now), counts(), seeds, known, leases, raws, retry, rolled,
  crawl.mode, told, held}
end
return apply()
