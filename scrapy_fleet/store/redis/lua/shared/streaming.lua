-- Items, as consumers get them: see crawl.lua for the stream.

local STREAM = key('items')

local function number_of(id) return tonumber(string.match(id, '^%d+')) end

-- Adds the number and the data of what XRANGE or XREADGROUP found.
local function tell(told, entries)
  for _, entry in ipairs(entries) do
    if entry[2] then
      told[#told + 1] = number_of(entry[1])
      told[#told + 1] = entry[2][2]
    end
  end
end

local function groups()
  local found = {}
  if call('EXISTS', STREAM) == 0 then return found end
  for _, flat in ipairs(call('XINFO', 'GROUPS', STREAM)) do
    local group = {}
    for i = 1, #flat, 2 do group[flat[i]] = flat[i + 1] end
    group.last = number_of(group['last-delivered-id'])
    found[#found + 1] = group
  end
  return found
end
