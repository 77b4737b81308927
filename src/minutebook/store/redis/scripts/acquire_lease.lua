-- Acquire or extend a lease. Its key expires with it. Also returns the claim of the conversation's id, if there is one.
local LEASE, LAST_FENCE, ERASED, CLAIMS = 1, 2, 3, 4
local tombstone, id, holder, milliseconds = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if redis.call('SISMEMBER', KEYS[ERASED], tombstone) == 1 then return {'erased'} end
local fence
local stored = redis.call('GET', KEYS[LEASE])
if stored then
  local stored_fence, stored_until, stored_holder = string.match(stored, '^(%d+):(%d+):(.*)$')
  if stored_holder ~= holder then return {'busy', stored_until} end
  fence = stored_fence
else
  fence = string.format('%.0f', redis.call('INCR', KEYS[LAST_FENCE]))
end
local now = redis.call('TIME')
local until_time = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000) + milliseconds)
redis.call('SET', KEYS[LEASE], fence .. ':' .. until_time .. ':' .. holder, 'PXAT', until_time)
return {'done', fence, until_time, redis.call('HGET', KEYS[CLAIMS], id) or ''}
