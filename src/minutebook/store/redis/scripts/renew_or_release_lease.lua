-- Renew a lease, give it back, or see whether it stands.
local LEASE, ERASED = 1, 2
local mark, fence, holder, what, milliseconds = unpack(ARGV)
local known = redis.call('GET', KEYS[LEASE])
local its_fence, its_holder = string.match(known or '', '^(%d+):%d+:(.*)$')
local stands = its_fence == fence and its_holder == holder
if what == 'release' then
  if stands then redis.call('DEL', KEYS[LEASE]) end
  return {'done'}
end
if redis.call('SISMEMBER', KEYS[ERASED], mark) == 1 then return {'erased'} end
if not stands then return {'lost'} end
if what == 'look' then return {'done'} end
local now = redis.call('TIME')
local ends = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(milliseconds))
redis.call('SET', KEYS[LEASE], fence .. ':' .. ends .. ':' .. holder, 'PXAT', ends)
return {'done', ends}
