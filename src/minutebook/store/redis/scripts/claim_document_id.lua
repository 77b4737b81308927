-- Take the name of a document, if it is still whose it was.
local name, before, after = unpack(ARGV)
if (redis.call('HGET', KEYS[1], name) or '') ~= before then return {'moved'} end
redis.call('HSET', KEYS[1], name, after)
return {'done'}
