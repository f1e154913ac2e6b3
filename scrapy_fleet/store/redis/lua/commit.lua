-- needs: crawl slots waiting holding seen adding settling keeping leasing
-- Apply a batch, in the order that store/base.py gives, and lease entries.
--
-- ARGV, from the third: worker, seq, flags (letters: s seeded, l leave, f finish), want, and packed lists:
-- groups (rank, slot) that adds name by position, adds, marks, all tokens that are named below, samples,
-- outcomes, releases, items, stats, state, and dice (numbers for jitter); then the worker's last batch
-- that was answered.
-- Answers: 'ok', now, counts, seeding, known positions (packed), leases (packed: token, lease),
-- retry_in, dice used, mode.

local worker, seq, flags, want = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local seeded, leave, finish =
  string.find(flags, 's') ~= nil, string.find(flags, 'l') ~= nil, string.find(flags, 'f') ~= nil

local member_facts = alive(worker)
if not member_facts then return {'given up'} end
if member_facts.seq < tonumber(ARGV[18]) then return disown(worker) end

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
  return {'ok', string.format('%.17g', now), counts(), seeding(worker), known, table.concat(told), '', 0,
    crawl.mode}
end

local known = add_entries(ARGV[7], ARGV[8])
mark_keys(ARGV[9])
local mine = downloads_of(worker)
local kept = settle(worker, member_facts, mine, ARGV[10], ARGV[11], ARGV[12], ARGV[13])

offer_seeding(worker)
if seeded and crawl.seeder == worker then crawl.seeded, crawl.seeder = 1, '' end
local seeds = seeding(worker)

keep(kept, ARGV[14], ARGV[15], ARGV[16])

local leases, retry, rolled = '', '', 0
if leave then
  forget(worker, wait)
  if finish and crawl.seeded == 1 and crawl.waiting + crawl.leased == 0 then crawl.finished = 1 end
else
  if want > 0 and crawl.mode == RUN then
    local out = start_leasing(worker, seq, ARGV[17], mine)
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
return {'ok', string.format('%.17g', now), counts(), seeds, known, leases, retry, rolled,
  crawl.mode}
