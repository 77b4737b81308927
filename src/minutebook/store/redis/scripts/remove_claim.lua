-- Make a claim worthless, if nothing came of it: whoever still holds it must ask again.
local header, void, order = KEYS[1], KEYS[2], KEYS[3]
if redis.call('EXISTS', header) == 1 then return {'done', 0} end
redis.call('SET', void, '1', 'PX', ARGV[2])
redis.call('ZREM', order, ARGV[1])
return {'done', 1}
