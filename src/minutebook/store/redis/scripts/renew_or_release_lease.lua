-- Renew, release or check a lease. It is active until another holder takes it, at most ten minutes after its end.
local LEASE, ERASED = 1, 2
local tombstone, fence, holder, action, milliseconds = unpack(ARGV)
local stored = redis.call('GET', KEYS[LEASE])
local stored_fence, stored_holder = string.match(stored or '', '^(%d+):%d+:(.*)$')
local is_active = stored_fence == fence and stored_holder == holder
if action == 'release' then
  if is_active then redis.call('DEL', KEYS[LEASE]) end
  return {'done'}
end
if redis.call('SISMEMBER', KEYS[ERASED], tombstone) == 1 then return {'erased'} end
if not is_active then return {'lost'} end
if action == 'check' then return {'done'} end
local now = redis.call('TIME')
local until_time = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(milliseconds))
redis.call('SET', KEYS[LEASE], fence .. ':' .. until_time .. ':' .. holder, 'PXAT', until_time + 600000)
return {'done', until_time}
