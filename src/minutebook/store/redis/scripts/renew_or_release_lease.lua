-- Renew, release or check a lease. An expired one can be used and renewed until another holder acquires it.
local LEASE, ERASED = 1, 2
local tombstone, fence, holder, action, milliseconds, grace = unpack(ARGV)
local stored = redis.call('GET', KEYS[LEASE])
local stored_fence, stored_holder = string.match(stored or '', '^(%d+):%d+:(.*)$')
local is_own = stored_fence == fence and stored_holder == holder
if action == 'release' then
  if is_own then redis.call('DEL', KEYS[LEASE]) end
  return {'done'}
end
if redis.call('SISMEMBER', KEYS[ERASED], tombstone) == 1 then return {'erased'} end
if not is_own then return {'lost'} end
if action == 'check' then return {'done'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local until_time = string.format('%.0f', now + tonumber(milliseconds))
redis.call('SET', KEYS[LEASE], fence .. ':' .. until_time .. ':' .. holder, 'PXAT', string.format('%.0f', until_time + grace))
return {'done', until_time}
