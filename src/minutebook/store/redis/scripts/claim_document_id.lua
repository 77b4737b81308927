-- Claim the key of a document if its claim has not changed. The minutes of a request are also added to the requests by age.
local CLAIMS, REQUESTS = 1, 2
local key, before, after, requested_at = unpack(ARGV)
if (redis.call('HGET', KEYS[CLAIMS], key) or '') ~= before then return {'conflict'} end
redis.call('HSET', KEYS[CLAIMS], key, after)
if requested_at ~= '' then redis.call('ZADD', KEYS[REQUESTS], requested_at, key) end
return {'done'}
