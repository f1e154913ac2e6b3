-- Documents that the workers of a crawl share. They outlive runs.
--
-- papers: HASH, name -> packed time when it was written, then its data.
-- makers: HASH, name -> packed time when its making was given to a worker, then the worker.

local function read_paper(name, of)
  local packed = call('HGET', key(name), of)
  if packed then return unpack_struct('<d', packed), string.sub(packed, 9) end
end
