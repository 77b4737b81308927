-- Add entries, if the conversation is still at the version that they were checked against.
local mark, nonce, version, key, answer, lifetime, member, fence, now = unpack(take_many(9))
local wanted = take_documents(take_number())
if erased(mark) then return {'erased'} end
local known = redis.call('HMGET', KEYS[HEADER], 'nonce', 'version')
if known[1] and key ~= '' then
  local answered = redis.call('HGET', KEYS[ANSWERS], key)
  if answered then return {'answered', answered} end
end
if fence ~= '' and tonumber(redis.call('GET', KEYS[FENCE]) or '0') > tonumber(fence) then return {'lost'} end
if known[1] then
  if known[1] ~= nonce or known[2] ~= version then return {'moved', header()} end
else
  if version ~= '' then return {'none'} end
  if redis.call('EXISTS', KEYS[VOID]) == 1 then return {'void'} end
end
if documents_moved(VOID + 1, wanted) then return {'documents'} end

redis.call('HSET', KEYS[HEADER], unpack(take_many(take_number())))
if not known[1] then
  redis.call('ZADD', KEYS[ORDER], 0, member)
  redis.call('INCR', KEYS[CHANGES])
end
local roles = take()
if roles ~= '' then redis.call('APPEND', KEYS[ROLES], roles) end
for _, turn in ipairs(take_many(take_number())) do redis.call('RPUSH', KEYS[TURNS], turn) end
for _ = 1, take_number() do
  local digest, body = take(), take()
  redis.call('HSETNX', KEYS[BLOBS], digest, body)
  redis.call('HINCRBY', KEYS[USES], digest, 1)
end
local position = take_number()
for at, entry in ipairs(take_many(take_number())) do
  redis.call('HSET', KEYS[ENTRIES], position + at - 1, entry)
end
if key ~= '' then redis.call('HSET', KEYS[ANSWERS], key, answer) end
put_documents(wanted)
if fence ~= '' then redis.call('SET', KEYS[FENCE], fence) end

if lifetime ~= '' then
  live_longer(HEADER, tonumber(lifetime))
  -- What it was forked from lives as long as it does.
  for origin = VOID + #wanted + 1, #KEYS, PARTS do live_longer(origin, tonumber(lifetime)) end
else
  keep_together(HEADER)
end
return {'done', #wanted > 0 and expired_documents(tonumber(now)) or {}}
