-- Claim an id for a recipient, or return the existing claim and its age. The claim with the nonce `replacing` is replaced.
local CLAIMS, ORDER, ERASED, BLOCKED = 1, 2, 3, 4
local id, tombstone, nonce, rank, recipient, replacing, recipient_hash = unpack(ARGV)
if redis.call('SISMEMBER', KEYS[ERASED], tombstone) == 1 then return {'erased'} end
if redis.call('SISMEMBER', KEYS[BLOCKED], recipient_hash) == 1 then return {'blocked'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.call('HGET', KEYS[CLAIMS], id)
if stored then
  local stored_nonce, claimed_at, stored_rank = string.match(stored, '^(%x+):(%d+):(%x+):')
  if stored_nonce ~= replacing then return {'done', stored, now - tonumber(claimed_at)} end
  redis.call('ZREM', KEYS[ORDER], stored_rank .. id)
end
local claim = nonce .. ':' .. string.format('%d', now) .. ':' .. rank .. ':' .. recipient
redis.call('HSET', KEYS[CLAIMS], id, claim)
redis.call('ZADD', KEYS[ORDER], 0, rank .. id)
return {'done', claim, 0}
