-- Copy a conversation up to a place, if it is still what the fork's header was made from.
local mark, mark_of_fork, nonce, version, marks, member, lifetime = unpack(take_many(7))
local cut, turns = take_number(), take_number()
local FORK = VOID + 1
local function key(part) return KEYS[FORK + part - 1] end

if erased(mark) then return {'erased'} end
if erased(mark_of_fork) then return {'fork erased'} end
local known = redis.call('HMGET', KEYS[HEADER], 'nonce', 'version', 'marks', 'length')
if not known[1] then return {'none'} end
if known[1] ~= nonce or known[2] ~= version or known[3] ~= marks then return {'moved'} end
if redis.call('EXISTS', key(HEADER)) == 1 then return {'taken', redis.call('HGET', key(HEADER), 'version')} end
if redis.call('EXISTS', KEYS[VOID]) == 1 then return {'void'} end

redis.call('HSET', key(HEADER), unpack(take_many(take_number())))
redis.call('ZADD', KEYS[ORDER], 0, member)
redis.call('INCR', KEYS[CHANGES])
if cut > 0 then
  for _, part in ipairs({ENTRIES, TURNS, BLOBS, USES}) do redis.call('COPY', KEYS[part], key(part), 'REPLACE') end
  remove_entries(FORK, cut, tonumber(known[4]))
  redis.call('SET', key(ROLES), redis.call('GETRANGE', KEYS[ROLES], 0, cut - 1))
  if turns == 0 then redis.call('DEL', key(TURNS)) else redis.call('LTRIM', key(TURNS), 0, turns - 1) end
end
for _ = 1, take_number() do
  local number, id, record = take(), take(), take()
  redis.call('HSET', key(FOLDS), number, record)
  redis.call('HSET', key(FOLD_IDS), id, number)
end
for _ = 1, take_number() do
  local number, start = take(), take()
  redis.call('ZADD', key(STANDING), start, number)
end
for _, pin in ipairs(redis.call('SMEMBERS', KEYS[PINS])) do
  if tonumber(pin) < cut then redis.call('SADD', key(PINS), pin) end
end
local at = redis.call('HGET', KEYS[HEADER], 'expires_at')
if at then redis.call('HSET', key(HEADER), 'expires_at', at) end
if lifetime ~= '' then
  live_longer(HEADER, tonumber(lifetime))
  for other = FORK, #KEYS, PARTS do live_longer(other, tonumber(lifetime)) end
else
  keep_together(FORK)
end
return {'done'}
