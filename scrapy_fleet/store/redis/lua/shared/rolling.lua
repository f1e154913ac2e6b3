  -- Keys in generations, by when they were last met: see seen.py. Each is a family of buckets with an epoch of
  -- its own; one that is dropped goes to the trash, whole.
  --
  -- meta, `generations`: packed (GENERATION), oldest first: epoch, buckets, seen, when it began, when one of
  --   its keys was last met, and whether it is of the hot line.
  local GENERATION, PARTS = '<dddddB', 6
  local generations, at = {}, 1
  local kept = call('HGET', KEYS[1], 'generations') or ''
  while at <= #kept do
    local it = {}
    it.epoch, it.buckets, it.seen, it.began, it.last, it.hot, at = unpack_struct(GENERATION, kept, at)
    generations[#generations + 1] = family(it)
  end
  filter.generations = generations

  local function span(hot) return hot == 1 and filter.window * filter.hot or filter.window end

  local function begin(hot)
    crawl.epoch = crawl.epoch + 1
    generations[#generations + 1] =
      family({epoch = crawl.epoch, buckets = 1, seen = 0, began = now, last = now, hot = hot})
    return generations[#generations]
  end

  -- The generation of a line in which keys that are met now belong, if it has begun.
  local function newest(hot)
    for i = #generations, 1, -1 do
      local it = generations[i]
      if it.hot == hot then return now < it.began + span(hot) / PARTS and it or nil end
    end
  end

  -- Drop what is too old; where keys belong that are met now. Once for all keys of a call.
  local cold, hot
  local function turn()
    if cold then return end
    for i = #generations, 1, -1 do
      local it = generations[i]
      if it.last + span(it.hot) < now then
        call('HSET', key('trash'), text(it.epoch), it.buckets)
        crawl.trash, crawl.seen = crawl.trash + 1, crawl.seen - it.seen
        table.remove(generations, i)
      end
    end
    cold, hot = newest(0) or begin(0), newest(1)
  end

  see = function(ending, digits)
    turn()
    if hot and call('SISMEMBER', bucket_key(hot, ending), digits) == 1 then
      hot.last = now
      return false
    end
    -- Most keys that are known were met a short while ago.
    if not put(cold, ending, digits) then
      cold.last = now
      return false
    end
    for i = #generations, 1, -1 do
      local it = generations[i]
      if it ~= cold and it ~= hot and call('SREM', bucket_key(it, ending), digits) == 1 then
        it.seen = it.seen - 1
        if filter.hot > 1 then
          hot = hot or begin(1)
          call('SREM', bucket_key(cold, ending), digits)
          cold.seen = cold.seen - 1
          put(hot, ending, digits)
          hot.last = now
        else
          cold.last = now
        end
        return false
      end
    end
    cold.last, crawl.seen = now, crawl.seen + 1
    return true
  end
  has = function(ending, digits)
    for _, it in ipairs(generations) do
      if call('SISMEMBER', bucket_key(it, ending), digits) == 1 then return true end
    end
    return false
  end
  lose = function(ending, digits)
    for _, it in ipairs(generations) do
      if call('SREM', bucket_key(it, ending), digits) == 1 then
        it.seen, crawl.seen = it.seen - 1, crawl.seen - 1
        return true
      end
    end
    return false
  end
  save_seen = function()
    local packed = {}
    for i, it in ipairs(generations) do
      packed[i] = pack(GENERATION, it.epoch, it.buckets, it.seen, it.began, it.last, it.hot)
    end
    call('HSET', KEYS[1], 'generations', table.concat(packed))
  end
