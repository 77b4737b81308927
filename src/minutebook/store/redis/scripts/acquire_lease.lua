-- Acquire or extend a lease. Its key stays for ten minutes after its end: the holder may renew it until another one takes it. Also returns the claim of the conversation's id, if there is one.
local LEASE, LAST_FENCE, ERASED, CLAIMS = 1, 2, 3, 4
local tombstone, id, holder, milliseconds = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if redis.call('SISMEMBER', KEYS[ERASED], tombstone) == 1 then return {'erased'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.call('GET', KEYS[LEASE]) or ''
local fence, stored_until, stored_holder = string.match(stored, '^(%d+):(%d+):(.*)$')
if not fence or tonumber(stored_until) <= now then
  fence = string.format('%.0f', redis.call('INCR', KEYS[LAST_FENCE]))
elseif stored_holder ~= holder then
  return {'busy', stored_until}
end
local until_time = string.format('%.0f', now + milliseconds)
redis.call('SET', KEYS[LEASE], fence .. ':' .. until_time .. ':' .. holder, 'PXAT', until_time + 600000)
return {'done', fence, until_time, redis.call('HGET', KEYS[CLAIMS], id) or ''}
