-- Remove the claims of documents that have not changed. The expected claim may be given without its nonce.
local CLAIMS, REQUESTS = 1, 2
for index = 1, #ARGV, 2 do
  local key, expected = ARGV[index], ARGV[index + 1]
  local claim = redis.call('HGET', KEYS[CLAIMS], key) or ''
  if claim == expected or string.sub(claim, 33) == expected then
    redis.call('HDEL', KEYS[CLAIMS], key)
    redis.call('ZREM', KEYS[REQUESTS], key)
  end
end
return {'done'}
