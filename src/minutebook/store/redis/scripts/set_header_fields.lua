-- Set fields of the header if the field `guard` still has this value; without a guard, in any case.
local tombstone, guard, value = take(), take(), take()
if is_erased(tombstone) then return {'erased'} end
if redis.call('EXISTS', KEYS[HEADER]) == 0 then return {'missing'} end
if guard ~= '' and redis.call('HGET', KEYS[HEADER], guard) ~= value then return {'conflict', header()} end
redis.call('HSET', KEYS[HEADER], unpack(take_many(#ARGV - arguments_taken)))
return {'done', header()}
