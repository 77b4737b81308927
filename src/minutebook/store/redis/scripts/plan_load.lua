-- What a load needs to know, from one moment: the header, the range to load, folds, pins and the pinned exchanges.
local tombstone, kind, count, limit, folded = take(), take(), take_number(), take(), take()
if is_erased(tombstone) then return {'erased'} end
local bounds = redis.call('HMGET', KEYS[HEADER], 'first', 'length')
if not bounds[1] then return {'missing'} end
local first, length = tonumber(bounds[1]), tonumber(bounds[2])

local function exchange(position)
  local start, stop = position, position + 1
  while splits_exchange(start, first, length) do start = start - 1 end
  while splits_exchange(stop, first, length) do stop = stop + 1 end
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
  numbers = redis.call('ZRANGE', KEYS[ACTIVE_FOLDS], 0, -1)
  for _, pin in ipairs(pins) do
    local from, to = exchange(tonumber(pin))
    pinned[#pinned + 1] = from
    pinned[#pinned + 1] = to
  end
else
  -- Active folds do not overlap, so of those that start before the range only the last can reach into it.
  numbers = redis.call('ZREVRANGEBYSCORE', KEYS[ACTIVE_FOLDS], start, '-inf', 'LIMIT', 0, 1)
  for _, number in ipairs(redis.call('ZRANGEBYSCORE', KEYS[ACTIVE_FOLDS], '(' .. start, '(' .. stop)) do
    numbers[#numbers + 1] = number
  end
end
local folds = {}
for index, number in ipairs(numbers) do folds[index] = redis.call('HGET', KEYS[FOLDS], number) end
return {'done', header(), start, stop, folds, pins, pinned}
