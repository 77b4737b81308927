-- Write folds, which of them are active, what was purged, and fields of the header, if no fold was added or undone since they
-- were read. With a version, the conversation must still have it.
local tombstone, nonce, fold_changes, purged_before, version, unpinned_from = unpack(take_many(6))
if is_erased(tombstone) then return {'erased'} end
local stored = redis.call('HMGET', KEYS[HEADER], 'nonce', 'marks', 'first', 'version')
if not stored[1] then return {'missing'} end
if stored[1] ~= nonce or stored[2] ~= fold_changes then return {'conflict'} end
if version ~= '' and stored[4] ~= version then return {'conflict'} end

redis.call('HINCRBY', KEYS[HEADER], 'marks', 1)
for _ = 1, take_number() do
  local number, id, record = take(), take(), take()
  redis.call('HSET', KEYS[FOLDS], number, record)
  redis.call('HSET', KEYS[FOLD_IDS], id, number)
end
for _, number in ipairs(take_many(take_number())) do redis.call('ZREM', KEYS[ACTIVE_FOLDS], number) end
for _ = 1, take_number() do
  local number, start = take(), take()
  redis.call('ZADD', KEYS[ACTIVE_FOLDS], start, number)
end
if purged_before ~= '' then
  remove_entries(HEADER, tonumber(stored[3]), tonumber(purged_before))
  for _, pin in ipairs(redis.call('SMEMBERS', KEYS[PINS])) do
    if tonumber(pin) < tonumber(purged_before) then redis.call('SREM', KEYS[PINS], pin) end
  end
  redis.call('HSET', KEYS[HEADER], 'first', purged_before)
end
if unpinned_from ~= '' then
  for _, pin in ipairs(redis.call('SMEMBERS', KEYS[PINS])) do
    if tonumber(pin) >= tonumber(unpinned_from) then redis.call('SREM', KEYS[PINS], pin) end
  end
end
local fields = take_many(take_number())
if #fields > 0 then redis.call('HSET', KEYS[HEADER], unpack(fields)) end
align_expiry(HEADER)
return {'done'}
