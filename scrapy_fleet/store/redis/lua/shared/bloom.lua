  -- A Bloom filter: its blocks are numbered through all layers. The bits of a key in a layer are in one block.
  local BLOCK_BITS, MAX_LAYERS, DIGEST = 32255, 20, 4294967295
  local layers, room = {}, 0

  local function next_layer()
    local number = #layers
    local hashes, blocks = unpack_struct(LAYER, crawl.filter, 1 + FILTER_SIZE + number * LAYER_SIZE)
    local last = layers[number]
    layers[number + 1] =
      {hashes = hashes, blocks = blocks, first = last and last.first + last.blocks or 0, write = false}
    room = room + filter.capacity * 2 ^ number
    if #layers == MAX_LAYERS then room = math.huge end
    crawl.buckets = layers[#layers].first + blocks
  end
  next_layer()
  while crawl.seen >= room do next_layer() end

  -- The four numbers of 32 bits by which a key is found. Most workers send them.
  local function words(ending, digits)
    if ending == DIGEST then return unpack_struct('>I4I4I4I4', digits) end
    local hex = redis.sha1hex(digits)
    return tonumber(string.sub(hex, 1, 8), 16), tonumber(string.sub(hex, 9, 16), 16),
      tonumber(string.sub(hex, 17, 24), 16), tonumber(string.sub(hex, 25, 32), 16)
  end

  local function block_key(layer, which)
    return crawl.prefix .. pack('<I4', layer.first + which % layer.blocks)
  end

  -- Whether all bits of a key are set. Of a key that is not there, half are not: two looks will do, mostly.
  local function is_in(layer, which, at, by, more)
    local block = block_key(layer, which)
    for _ = 1, layer.hashes do
      if call('GETBIT', block, at % BLOCK_BITS) == 0 then return false end
      at, by = at + by, by + more
    end
    return true
  end

  -- Sets all bits of a key, in one command: whether they were set. The last bit of a block is written with
  -- them, but never set: so a string gets its whole length at once, and no more.
  local function put_in(layer, which, at, by, more)
    local write = layer.write
    if not write then
      write = {'BITFIELD', '', 'SET', 'u1', text(BLOCK_BITS), '0'}
      for i = 1, layer.hashes do
        write[4 * i + 3], write[4 * i + 4], write[4 * i + 5], write[4 * i + 6] = 'SET', 'u1', 0, '1'
      end
      layer.write = write
    end
    write[2] = block_key(layer, which)
    for i = 1, layer.hashes do
      write[4 * i + 5] = at % BLOCK_BITS
      at, by = at + by, by + more
    end
    local found = call(unpack(write))
    for i = 2, #found do
      if found[i] == 0 then return false end
    end
    return true
  end

  see = function(ending, digits)
    if crawl.seen >= room then next_layer() end
    local which, at, by, more = words(ending, digits)
    for i = 1, #layers - 1 do
      if is_in(layers[i], which, at, by, more) then return false end
    end
    if put_in(layers[#layers], which, at, by, more) then return false end
    crawl.seen = crawl.seen + 1
    return true
  end
  has = function(ending, digits)
    local which, at, by, more = words(ending, digits)
    for _, layer in ipairs(layers) do
      if is_in(layer, which, at, by, more) then return true end
    end
    return false
  end
  save_seen = function() end
