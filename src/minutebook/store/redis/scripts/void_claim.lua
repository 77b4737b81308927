-- Void a claim unless its conversation exists. A process that still has the claim must claim the id again.
local HEADER, VOID, ORDER = 1, 2, 3
if redis.call('EXISTS', KEYS[HEADER]) == 1 then return {'done', 0} end
redis.call('SET', KEYS[VOID], '1', 'PX', ARGV[2])
redis.call('ZREM', KEYS[ORDER], ARGV[1])
return {'done', 1}
