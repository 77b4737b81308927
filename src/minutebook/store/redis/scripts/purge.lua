-- What decides whether a fork may leave at a place: whether it splits an exchange, and how many turns are before it.
local mark, position = take(), take_number()
if erased(mark) then return {'erased'} end
local found = header()
if #found == 0 then return {'none'} end
local known = redis.call('HMGET', KEYS[HEADER], 'first', 'length')
local low, high = 0, redis.call('LLEN', KEYS[TURNS])
while low < high do
  local middle = math.floor((low + high) / 2)
  if tonumber(redis.call('LINDEX', KEYS[TURNS], middle)) < position then low = middle + 1 else high = middle end
end
return {
  'done', found, splits(position, tonumber(known[1]), tonumber(known[2])) and 1 or 0, low,
  redis.call('HGETALL', KEYS[FOLDS]),
}
