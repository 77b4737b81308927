-- All that a load needs to know, at one moment: header, where the part begins and ends, folds and pins.
local mark, kind, count, limit, folded = take(), take(), take_number(), take(), take()
if erased(mark) then return {'erased'} end
local known = redis.call('HMGET', KEYS[HEADER], 'first', 'length')
if not known[1] then return {'none'} end
local first, length = tonumber(known[1]), tonumber(known[2])

local function exchange(position)
  local start, stop = position, position + 1
  while splits(start, first, length) do start = start - 1 end
  while splits(stop, first, length) do stop = stop + 1 end
  return start, stop
end

local start = math.min(count, length)
if kind == 'turns' then
  if count == 0 then
    start = length
  elseif count < redis.call('LLEN', KEYS[TURNS]) then
    start = tonumber(redis.call('LINDEX', KEYS[TURNS], -count))
  else
    start = 0
  end
elseif kind == 'messages' then
  start = math.max(first, length - count)
  if start < length then start = exchange(start) end
end
start = math.max(first, start)
local stop = length
if limit ~= '' then stop = math.min(start + tonumber(limit), length) end

local pins = redis.call('SMEMBERS', KEYS[PINS])
local numbers, pinned = {}, {}
if folded ~= '' then
  numbers = redis.call('ZRANGE', KEYS[STANDING], 0, -1)
  for _, pin in ipairs(pins) do
    local from, to = exchange(tonumber(pin))
    pinned[#pinned + 1] = from
    pinned[#pinned + 1] = to
  end
else
  -- Standing folds do not overlap: the last that begins before the part is the only one that can reach into it.
  numbers = redis.call('ZREVRANGEBYSCORE', KEYS[STANDING], start, '-inf', 'LIMIT', 0, 1)
  for _, number in ipairs(redis.call('ZRANGEBYSCORE', KEYS[STANDING], '(' .. start, '(' .. stop)) do
    numbers[#numbers + 1] = number
  end
end
local folds = {}
for at, number in ipairs(numbers) do folds[at] = redis.call('HGET', KEYS[FOLDS], number) end
return {'done', header(), start, stop, folds, pins, pinned}
