-- Every fold there is, by its number.
local mark = take()
if erased(mark) then return {'erased'} end
local found = header()
if #found == 0 then return {'none'} end
return {'done', found, redis.call('HGETALL', KEYS[FOLDS])}
