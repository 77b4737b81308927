-- All folds by number, undone ones too.
local tombstone = take()
if is_erased(tombstone) then return {'erased'} end
local fields = header()
if #fields == 0 then return {'missing'} end
return {'done', fields, redis.call('HGETALL', KEYS[FOLDS])}
