  -- A Bloom filter: its blocks are numbered through all layers. The bits of a key in a layer are in one block, which
  -- one command reads or writes. The last bit of a block is never set, but always written: so a string gets its whole
  -- length at once, and no more.
  local BLOCK_BITS, MAX_LAYERS = 32255, 20
  local layers, room = {}, 0

  local function next_layer()
    local number = #layers
    local hashes, blocks =
      unpack_struct(LAYER, crawl.filter, 1 + FILTER_SIZE + number * LAYER_SIZE)
    local read, write = {'BITFIELD', ''}, {'BITFIELD', '', 'SET', 'u1', BLOCK_BITS, 0}
    for i = 1, hashes do
      read[3 * i], read[3 * i + 1] = 'GET', 'u1'
      write[4 * i + 3], write[4 * i + 4], write[4 * i + 6] = 'SET', 'u1', 1
      write[4 * i + 5], read[3 * i + 2] = 0, 0
    end
    local last = layers[number]
    layers[number + 1] = {hashes = hashes, blocks = blocks, read = read, write = write,
      first = last and last.first + last.blocks or 0}
    room = room + filter.capacity * 2 ^ number
    if #layers == MAX_LAYERS then room = math.huge end
    crawl.buckets = layers[#layers].first + blocks
  end
  next_layer()
  while crawl.seen >= room do next_layer() end

  -- The four numbers of 32 bits by which a key is found.
  local function words(digits)
    local hex = redis.sha1hex(digits)
    return tonumber(string.sub(hex, 1, 8), 16), tonumber(string.sub(hex, 9, 16), 16),
      tonumber(string.sub(hex, 17, 24), 16), tonumber(string.sub(hex, 25, 32), 16)
  end

  -- Whether all bits of a key were set in a layer; with the layer's command that reads, or that writes.
  local function bits(layer, command, from, step, which, at, by, more)
    command[2] = crawl.prefix .. pack('<I4', layer.first + which % layer.blocks)
    for i = 1, layer.hashes do
      command[from + step * i] = at % BLOCK_BITS
      at, by = at + by, by + more
    end
    local found = call(unpack(command))
    for i = #found - layer.hashes + 1, #found do
      if found[i] == 0 then return false end
    end
    return true
  end

  local function is_in(layer, ...) return bits(layer, layer.read, 2, 3, ...) end

  see = function(_, digits)
    if crawl.seen >= room then next_layer() end
    local which, at, by, more = words(digits)
    for i = 1, #layers - 1 do
      if is_in(layers[i], which, at, by, more) then return false end
    end
    local layer = layers[#layers]
    if bits(layer, layer.write, 5, 4, which, at, by, more) then return false end
    crawl.seen = crawl.seen + 1
    return true
  end
  has = function(_, digits)
    local which, at, by, more = words(digits)
    for _, layer in ipairs(layers) do
      if is_in(layer, which, at, by, more) then return true end
    end
    return false
  end
  save_seen = function() end
