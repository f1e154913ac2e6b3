-- A slot as observers get it: its name; packed numbers; its manners and its override, packed, or ''.

local function view(s)
  local numbers = pack('<dddddddd', s.queued + s.suspects, s.leased, s.done, s.active,
    s.rule_concurrency or crawl.concurrency, polite().least_delay(s), s.next_at, s.latency)
  return {s.name, numbers, s.manners and polite().write(s.manners) or '',
    s.override and s.override.packed or ''}
end
