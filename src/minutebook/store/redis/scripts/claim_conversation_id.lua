-- Take an id for a recipient, or say who has it. With `instead_of` an earlier claim, by its nonce, is replaced.
local id, mark, nonce, rank, recipient, instead_of = unpack(ARGV)
if redis.call('SISMEMBER', KEYS[3], mark) == 1 then return {'erased'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HGET', KEYS[1], id)
if known then
  local its_nonce, since, its_rank = string.match(known, '^(%x+):(%d+):(%x+):')
  if its_nonce ~= instead_of then return {'known', known, now - tonumber(since)} end
  redis.call('ZREM', KEYS[2], its_rank .. id)
end
local claim = nonce .. ':' .. string.format('%d', now) .. ':' .. rank .. ':' .. recipient
redis.call('HSET', KEYS[1], id, claim)
redis.call('ZADD', KEYS[2], 0, rank .. id)
return {'known', claim, 0}
