-- Set fields of the header, if one of them is still what it was.
local mark, guard, value = take(), take(), take()
if erased(mark) then return {'erased'} end
if redis.call('EXISTS', KEYS[HEADER]) == 0 then return {'none'} end
if guard ~= '' and redis.call('HGET', KEYS[HEADER], guard) ~= value then return {'moved', header()} end
redis.call('HSET', KEYS[HEADER], unpack(take_many(#ARGV - place)))
return {'done', header()}
