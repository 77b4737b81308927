-- The claim of a conversation's id, which names the recipient; empty if there is none.
local CLAIMS, ERASED = 1, 3
if redis.call('SISMEMBER', KEYS[ERASED], ARGV[2]) == 1 then return {'erased'} end
return {'done', redis.call('HGET', KEYS[CLAIMS], ARGV[1]) or ''}
