-- Take documents out of the list of all, as far as they are still whose they were. What is compared may lack the nonce.
for at = 1, #ARGV, 2 do
  local owner = redis.call('HGET', KEYS[1], ARGV[at]) or ''
  if owner == ARGV[at + 1] or string.sub(owner, 33) == ARGV[at + 1] then redis.call('HDEL', KEYS[1], ARGV[at]) end
end
return {'done'}
