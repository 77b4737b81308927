-- Take a lease, or have it for longer. It is gone by itself when its time is over. Says whose the id is, if anybody's.
local LEASE, FENCE, ERASED, PLACE = 1, 2, 3, 4
local mark, id, holder, milliseconds = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if redis.call('SISMEMBER', KEYS[ERASED], mark) == 1 then return {'erased'} end
local fence
local known = redis.call('GET', KEYS[LEASE])
if known then
  local its_fence, its_end, its_holder = string.match(known, '^(%d+):(%d+):(.*)$')
  if its_holder ~= holder then return {'busy', its_end} end
  fence = its_fence
else
  fence = string.format('%.0f', redis.call('INCR', KEYS[FENCE]))
end
local now = redis.call('TIME')
local ends = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000) + milliseconds)
redis.call('SET', KEYS[LEASE], fence .. ':' .. ends .. ':' .. holder, 'PXAT', ends)
return {'done', fence, ends, redis.call('HGET', KEYS[PLACE], id) or ''}
