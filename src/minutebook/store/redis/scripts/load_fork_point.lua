-- What is needed to fork at a position: the header, whether the position splits an exchange, the number of turns before
-- it, and all folds.
local tombstone, position = take(), take_number()
if is_erased(tombstone) then return {'erased'} end
local fields = header()
if #fields == 0 then return {'missing'} end
local bounds = redis.call('HMGET', KEYS[HEADER], 'first', 'length')
local low, high = 0, redis.call('LLEN', KEYS[TURNS])
while low < high do
  local middle = math.floor((low + high) / 2)
  if tonumber(redis.call('LINDEX', KEYS[TURNS], middle)) < position then low = middle + 1 else high = middle end
end
return {
  'done', fields, splits_exchange(position, tonumber(bounds[1]), tonumber(bounds[2])) and 1 or 0, low,
  redis.call('HGETALL', KEYS[FOLDS]),
}
