-- Remove the claims of documents that have not changed. The expected claim may be given without its nonce.
for index = 1, #ARGV, 2 do
  local key, expected = ARGV[index], ARGV[index + 1]
  local claim = redis.call('HGET', KEYS[1], key) or ''
  if claim == expected or string.sub(claim, 33) == expected then redis.call('HDEL', KEYS[1], key) end
end
return {'done'}
