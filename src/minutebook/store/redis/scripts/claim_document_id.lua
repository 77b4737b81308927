-- Claim the key of a document if its claim has not changed.
local key, before, after = unpack(ARGV)
if (redis.call('HGET', KEYS[1], key) or '') ~= before then return {'conflict'} end
redis.call('HSET', KEYS[1], key, after)
return {'done'}
