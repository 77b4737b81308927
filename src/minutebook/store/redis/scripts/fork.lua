-- Copy a conversation up to a position if it has not changed since the fork's header was made from it.
local tombstone, fork_tombstone, nonce, version, fold_changes, member, lifetime = unpack(take_many(7))
local length, turns = take_number(), take_number()
local FORK = VOID + 1
local function fork_key(part) return KEYS[FORK + part - 1] end

if is_erased(tombstone) then return {'erased'} end
if is_erased(fork_tombstone) then return {'fork erased'} end
local stored = redis.call('HMGET', KEYS[HEADER], 'nonce', 'version', 'marks', 'length')
if not stored[1] then return {'missing'} end
if stored[1] ~= nonce or stored[2] ~= version or stored[3] ~= fold_changes then return {'conflict'} end
if redis.call('EXISTS', fork_key(HEADER)) == 1 then
  return {'taken', redis.call('HGET', fork_key(HEADER), 'version')}
end
if redis.call('EXISTS', KEYS[VOID]) == 1 then return {'void'} end

redis.call('HSET', fork_key(HEADER), unpack(take_many(take_number())))
redis.call('ZADD', KEYS[ORDER], 0, member)
redis.call('INCR', KEYS[CHANGES])
if length > 0 then
  for _, part in ipairs({ENTRIES, TURNS, PAYLOADS, USES}) do
    redis.call('COPY', KEYS[part], fork_key(part), 'REPLACE')
  end
  remove_entries(FORK, length, tonumber(stored[4]))
  redis.call('SET', fork_key(ROLES), redis.call('GETRANGE', KEYS[ROLES], 0, length - 1))
  if turns == 0 then redis.call('DEL', fork_key(TURNS)) else redis.call('LTRIM', fork_key(TURNS), 0, turns - 1) end
end
for _ = 1, take_number() do
  local number, id, record = take(), take(), take()
  redis.call('HSET', fork_key(FOLDS), number, record)
  redis.call('HSET', fork_key(FOLD_IDS), id, number)
end
for _ = 1, take_number() do
  local number, start = take(), take()
  redis.call('ZADD', fork_key(ACTIVE_FOLDS), start, number)
end
for _, pin in ipairs(redis.call('SMEMBERS', KEYS[PINS])) do
  if tonumber(pin) < length then redis.call('SADD', fork_key(PINS), pin) end
end
local expires_at = redis.call('HGET', KEYS[HEADER], 'expires_at')
if expires_at then redis.call('HSET', fork_key(HEADER), 'expires_at', expires_at) end
if lifetime ~= '' then
  extend_lifetime(HEADER, tonumber(lifetime))
  for first = FORK, #KEYS, PARTS do extend_lifetime(first, tonumber(lifetime)) end
else
  align_expiry(FORK)
end
return {'done'}
