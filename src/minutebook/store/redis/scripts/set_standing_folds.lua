-- Write folds, which of them stand, and what was purged, if no other fold came or went since they were looked at.
local mark, nonce, marks, before = unpack(take_many(4))
if erased(mark) then return {'erased'} end
local known = redis.call('HMGET', KEYS[HEADER], 'nonce', 'marks', 'first')
if not known[1] then return {'none'} end
if known[1] ~= nonce or known[2] ~= marks then return {'moved'} end

redis.call('HINCRBY', KEYS[HEADER], 'marks', 1)
for _ = 1, take_number() do
  local number, id, record = take(), take(), take()
  redis.call('HSET', KEYS[FOLDS], number, record)
  redis.call('HSET', KEYS[FOLD_IDS], id, number)
end
for _, number in ipairs(take_many(take_number())) do redis.call('ZREM', KEYS[STANDING], number) end
for _ = 1, take_number() do
  local number, start = take(), take()
  redis.call('ZADD', KEYS[STANDING], start, number)
end
if before ~= '' then
  remove_entries(HEADER, tonumber(known[3]), tonumber(before))
  for _, pin in ipairs(redis.call('SMEMBERS', KEYS[PINS])) do
    if tonumber(pin) < tonumber(before) then redis.call('SREM', KEYS[PINS], pin) end
  end
  redis.call('HSET', KEYS[HEADER], 'first', before)
end
keep_together(HEADER)
return {'done'}
