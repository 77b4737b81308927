-- Take ids out of the list of all: those that a nonce or a tombstone comes with.
for at = 1, #ARGV, 3 do
  local id, nonce, mark = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local known = redis.call('HGET', KEYS[1], id)
  if known then
    local its_nonce, its_rank = string.match(known, '^(%x+):%d+:(%x+):')
    if mark ~= '' or its_nonce == nonce then
      redis.call('HDEL', KEYS[1], id)
      redis.call('ZREM', KEYS[2], its_rank .. id)
    end
  end
  if mark ~= '' then redis.call('SADD', KEYS[3], mark) end
end
return {'done'}
