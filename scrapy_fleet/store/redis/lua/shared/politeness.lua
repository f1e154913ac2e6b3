-- How a slot is treated: the rules of politeness.py, which says more about them; a test compares the two.
--
-- Manners are tables with the fields that politeness.Manners has; `auto` is -1 before the first response,
-- `lost` is 1 or 0. They are kept at the end of a slot's record (see slots.lua), where they are not plain.
--
-- overrides: HASH, slot -> packed, what people told about it: delay and concurrency (-1: nothing), blocked,
--   boost. Slots that were never met may be among them. They outlive runs.
-- held: ZSET, names of slots that were held, blocked or slowed down, by the number of the latest time that
--   this happened, counted by `held` in meta. A worker is told of those above the number it knows.

local function make_polite()
  local MANNERS = '<ddddI4I4BHc0'
  local SILENCE = 'no answer: '
  local own = {}

  -- AutoThrottle's part of the plan, and how long slots are left alone.
  local plan = {start = 0, most = 0, target = 1, first = 0, longest = 0, failures = 0, patience = 0}
  if crawl.policy ~= '' then
    plan.start, plan.most, plan.target, plan.first, plan.longest, plan.failures, plan.patience =
      unpack_struct('<ddddddd', crawl.policy)
  end

  local function plain()
    return {auto = -1, robots = 0, held_until = 0, failing_since = 0, holds = 0, failures = 0, lost = 0,
      reason = ''}
  end

  function own.read(packed, at)
    local auto, robots, held_until, failing_since, holds, failures, lost, reason =
      unpack_struct(MANNERS, packed, at)
    return {auto = auto, robots = robots, held_until = held_until, failing_since = failing_since,
      holds = holds, failures = failures, lost = lost, reason = reason}
  end

  -- Manners as they are kept; '' if they are plain.
  function own.write(m)
    if m.auto == -1 and m.robots == 0 and m.held_until == 0 and m.holds == 0 and m.failures == 0
        and m.lost == 0 and m.reason == '' then
      return ''
    end
    return pack(MANNERS, m.auto, m.robots, m.held_until, m.failing_since, m.holds, m.failures, m.lost,
      #m.reason, m.reason)
  end

  function own.read_override(packed)
    local delay, concurrency, blocked, boost = unpack_struct('<ddBd', packed)
    return {delay = delay, concurrency = concurrency, blocked = blocked, boost = boost, packed = packed}
  end

  local function is_failing(m) return plan.failures > 0 and m.failures >= plan.failures end

  function own.is_probed(m) return m.lost == 0 and is_failing(m) end

  local function hold(m, reason)
    -- A bounded exponent: a slot may be held for weeks.
    local wait = math.min(plan.longest, plan.first * 2 ^ math.min(m.holds, 50))
    m.held_until, m.holds, m.reason = now + wait, m.holds + 1, reason
  end

  local function fail(m, reason, by)
    if m.failures == 0 then m.failing_since = now end
    m.failures = m.failures + by
    -- Those that were under way together count once.
    if not is_failing(m) or m.held_until > now then return end
    hold(m, SILENCE .. reason)
    m.lost = now - m.failing_since >= plan.patience and 1 or 0
  end

  local function refuse(m, status, retry_after)
    if retry_after == 0 then
      if m.held_until <= now then hold(m, text(status)) end
    elseif now + retry_after > m.held_until then
      m.held_until, m.holds, m.reason = now + retry_after, m.holds + 1, text(status) .. ', Retry-After'
    end
  end

  local function forgive(m) m.holds, m.held_until, m.reason = 0, 0, '' end

  -- It answers: it is not left alone for its silence any longer, but still if it asked for it.
  local function answers(m)
    m.failures, m.failing_since, m.lost = 0, 0, 0
    if string.sub(m.reason, 1, #SILENCE) == SILENCE then forgive(m) end
  end

  -- A slot that was given up gets a new chance.
  function own.pardon(m)
    if m.lost == 0 then return end
    m.failures, m.failing_since, m.lost = 0, 0, 0
    forgive(m)
  end

  local function auto_delay(auto, least) return auto < 0 and math.max(least, plan.start) or auto end

  -- AutoThrottle, as Scrapy's extension has it.
  local function throttle(m, latency, status, least)
    local old, target = auto_delay(m.auto, least), latency / plan.target
    local new = math.min(math.max(least, target, (old + target) / 2), plan.most)
    -- Error pages come fast; they must not make us faster.
    if status ~= 200 and new <= old then new = old end
    m.auto = new
  end

  -- A download in the slot has ended. `status` is 0 if no response came, `latency` -1 if it is not known,
  -- `retry_after` 0 if nothing was asked for, `failed` '' if the site answered; `least` is the delay of
  -- the slot's rule.
  function own.sampled(m, latency, status, retry_after, failed, least)
    if failed ~= '' then return fail(m, failed, 1) end
    if status == 0 then return end
    if m.failures > 0 then answers(m) end
    if status == 429 or status == 503 then
      refuse(m, status, retry_after)
    elseif status < 500 and m.holds > 0 and m.held_until <= now then
      m.holds, m.reason = 0, ''
    end
    if crawl.auto == 1 and latency >= 0 then throttle(m, latency, status, least) end
  end

  -- Something else was learnt about the slot; `distance` is -1 if not that, the others are as above.
  function own.noticed(m, distance, failed, status, retry_after)
    if distance >= 0 then m.robots = distance end
    if failed ~= '' then fail(m, failed, math.max(1, plan.failures)) end
    if (status == 429 or status == 503) and m.lost == 0 then refuse(m, status, retry_after) end
  end

  -- The delay of the slot's rule.
  function own.least_delay(slot) return slot.rule_delay or crawl.delay end

  -- Set what leasing goes by: the distance of the slot's requests, how many at a time (0: it is
  -- blocked), until when it is left alone (-1: it is given up, no time counts), and by how much its rank
  -- is better.
  function own.treat(slot)
    local m, o, least = slot.manners, slot.override, own.least_delay(slot)
    local delay, concurrency, held = least, slot.rule_concurrency or crawl.concurrency, 0
    if m then
      held = m.held_until
      delay = math.max(delay, m.robots)
    end
    if crawl.auto == 1 and not slot.unpaced then delay = math.max(delay, auto_delay(m and m.auto or -1, least)) end
    if o then
      if o.delay >= 0 then delay = o.delay end
      if o.concurrency >= 0 then concurrency = o.concurrency end
    end
    if m and m.lost == 1 then
      delay, held = 0, -1
    elseif m and own.is_probed(m) then
      concurrency = 1
    end
    if o and o.blocked == 1 then concurrency = 0 end
    slot.delay, slot.concurrency, slot.held, slot.boost = delay, concurrency, held, o and o.boost
  end

  -- The least distance between the slot's requests. Jitter shortens a delay, but not what robots.txt
  -- asks for.
  function own.pace_of(slot)
    local m, o, least = slot.manners, slot.override, slot.delay * (1 - slot.jitter)
    if not m or m.lost == 1 or o and o.delay >= 0 then return least end
    return math.max(least, m.robots)
  end

  -- How late a lease may begin; see politeness.py.
  function own.leeway_of(pace) return pace >= 0.5 and 1.5 or 0 end

  -- Whether the slot has a delay, whatever happens, unless it has a rule or an override of its own.
  function own.all_wait() return crawl.delay > 0 or crawl.auto == 1 and plan.start > 0 and plan.most > 0 end

  -- Why the slot's entries are dead; '' if it is not given up.
  function own.loss_of(m)
    if m.lost == 0 then return '' end
    return m.reason .. '; given up after ' .. string.format('%g', plan.patience) .. ' s'
  end

  -- Workers that have leases in the slot are to hear of it.
  function own.announce(slot)
    crawl.held = crawl.held + 1
    call('ZADD', key('held'), crawl.held, slot.name)
  end

  -- Change a slot's manners, by a function that is called with them and what follows.
  function own.learn(slot, change, ...)
    local m = slot.manners or plain()
    local held = m.held_until
    change(m, ...)
    slot.manners = m
    own.treat(slot)
    if m.held_until > held then own.announce(slot) end
  end

  return own
end

-- The rules. They are made when they are first asked for: most calls need none of them.
local made
local function polite()
  made = made or make_polite()
  return made
end

-- When a slot may be asked again.
local function due_at(slot)
  local held = slot.held
  if not held then return slot.next_at end
  return held < 0 and 0 or math.max(slot.next_at, held)
end

-- When it may be served: ahead of its time, but not while it is still open how late the newest lease begins.
local function opens_at(slot)
  local due = slot.held and due_at(slot) or slot.next_at
  return slot.leeway > 0 and due or due - HORIZON
end
