-- Add or remove a pin, if there is an entry at its place.
local mark, position, command = take(), take_number(), take()
if erased(mark) then return {'erased'} end
local known = redis.call('HMGET', KEYS[HEADER], 'first', 'length')
if not known[1] then return {'none'} end
if position < tonumber(known[1]) or position >= tonumber(known[2]) then return {'outside', header()} end
redis.call(command, KEYS[PINS], position)
keep_together(HEADER)
return {'done'}
