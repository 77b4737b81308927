-- Append entries if the conversation still has the version that they were checked against.
local tombstone, nonce, version, key, key_record, lifetime, member, fence, now = unpack(take_many(9))
local documents = take_documents(take_number())
if is_erased(tombstone) then return {'erased'} end
local stored = redis.call('HMGET', KEYS[HEADER], 'nonce', 'version')
if stored[1] and key ~= '' then
  local earlier_append = redis.call('HGET', KEYS[APPENDS_BY_KEY], key)
  if earlier_append then return {'repeated', earlier_append} end
end
if fence ~= '' and tonumber(redis.call('GET', KEYS[FENCE]) or '0') > tonumber(fence) then return {'lost'} end
if stored[1] then
  if stored[1] ~= nonce or stored[2] ~= version then return {'conflict', header()} end
else
  if version ~= '' then return {'missing'} end
  if redis.call('SISMEMBER', KEYS[TOMBSTONES], 'blocked') == 1 then return {'blocked'} end
  if redis.call('EXISTS', KEYS[VOID]) == 1 then return {'void'} end
end
if have_documents_changed(VOID + 1, documents) then return {'documents changed'} end

redis.call('HSET', KEYS[HEADER], unpack(take_many(take_number())))
if not stored[1] then
  redis.call('ZADD', KEYS[ORDER], 0, member)
  redis.call('INCR', KEYS[CHANGES])
end
local roles = take()
if roles ~= '' then redis.call('APPEND', KEYS[ROLES], roles) end
for _, turn in ipairs(take_many(take_number())) do redis.call('RPUSH', KEYS[TURNS], turn) end
for _ = 1, take_number() do
  local digest, payload = take(), take()
  redis.call('HSETNX', KEYS[PAYLOADS], digest, payload)
  redis.call('HINCRBY', KEYS[USES], digest, 1)
end
local position = take_number()
for index, entry in ipairs(take_many(take_number())) do
  redis.call('HSET', KEYS[ENTRIES], position + index - 1, entry)
end
if key ~= '' then redis.call('HSET', KEYS[APPENDS_BY_KEY], key, key_record) end
put_documents(documents)
if fence ~= '' then redis.call('SET', KEYS[FENCE], fence) end

if lifetime ~= '' then
  extend_lifetime(HEADER, tonumber(lifetime))
  -- The conversations that it was forked from must not expire before it.
  for origin = VOID + #documents + 1, #KEYS, PARTS do extend_lifetime(origin, tonumber(lifetime)) end
else
  align_expiry(HEADER)
end
return {'done', #documents > 0 and expired_documents(tonumber(now)) or {}}
