-- Replace entries by smaller ones if they have not changed since those were made from them.
local tombstone, nonce = take(), take()
if is_erased(tombstone) then return {'erased'} end
local stored_nonce = redis.call('HGET', KEYS[HEADER], 'nonce')
if not stored_nonce then return {'missing'} end
if stored_nonce ~= nonce then return {'conflict'} end
local changes = {}
for index = 1, take_number() do
  local position, before, entry = take(), take(), take()
  changes[index] = {position, entry, take_many(2 * take_number())}
  if redis.sha1hex(redis.call('HGET', KEYS[ENTRIES], position) or '') ~= before then return {'conflict'} end
end
for _, change in ipairs(changes) do
  local position, entry, payloads = unpack(change)
  remove_entries(HEADER, tonumber(position), tonumber(position) + 1)
  for index = 1, #payloads, 2 do
    redis.call('HSETNX', KEYS[PAYLOADS], payloads[index], payloads[index + 1])
    redis.call('HINCRBY', KEYS[USES], payloads[index], 1)
  end
  redis.call('HSET', KEYS[ENTRIES], position, entry)
end
redis.call('HINCRBY', KEYS[HEADER], 'trims', 1)
align_expiry(HEADER)
return {'done'}
