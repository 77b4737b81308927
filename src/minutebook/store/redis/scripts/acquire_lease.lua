-- Acquire or extend a lease. Its key is kept for some time after its end, so that its holder can still renew it. Also returns
-- the claim of the conversation's id, if there is one.
local LEASE, LAST_FENCE, ERASED, CLAIMS = 1, 2, 3, 4
local tombstone, id, holder, milliseconds, grace = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if redis.call('SISMEMBER', KEYS[ERASED], tombstone) == 1 then return {'erased'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fence
local stored = redis.call('GET', KEYS[LEASE])
if stored then
  local stored_fence, stored_until, stored_holder = string.match(stored, '^(%d+):(%d+):(.*)$')
  if tonumber(stored_until) > now then
    if stored_holder ~= holder then return {'busy', stored_until} end
    fence = stored_fence
  end
end
fence = fence or string.format('%.0f', redis.call('INCR', KEYS[LAST_FENCE]))
local until_time = string.format('%.0f', now + milliseconds)
redis.call('SET', KEYS[LEASE], fence .. ':' .. until_time .. ':' .. holder, 'PXAT', string.format('%.0f', until_time + grace))
return {'done', fence, until_time, redis.call('HGET', KEYS[CLAIMS], id) or ''}
