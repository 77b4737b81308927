-- Add or remove a pin if there is an entry at its position.
local tombstone, position, command = take(), take_number(), take()
if is_erased(tombstone) then return {'erased'} end
local bounds = redis.call('HMGET', KEYS[HEADER], 'first', 'length')
if not bounds[1] then return {'missing'} end
if position < tonumber(bounds[1]) or position >= tonumber(bounds[2]) then return {'no entry', header()} end
redis.call(command, KEYS[PINS], position)
align_expiry(HEADER)
return {'done'}
