-- Remove ids from the tenant's index: expired ones, if the claim still has the nonce, and erased ones, with a tombstone.
local CLAIMS, ORDER, ERASED = 1, 2, 3
for index = 1, #ARGV, 3 do
  local id, nonce, tombstone = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local claim = redis.call('HGET', KEYS[CLAIMS], id)
  if claim then
    local stored_nonce, rank = string.match(claim, '^(%x+):%d+:(%x+):')
    if tombstone ~= '' or stored_nonce == nonce then
      redis.call('HDEL', KEYS[CLAIMS], id)
      redis.call('ZREM', KEYS[ORDER], rank .. id)
    end
  end
  if tombstone ~= '' then redis.call('SADD', KEYS[ERASED], tombstone) end
end
return {'done'}
