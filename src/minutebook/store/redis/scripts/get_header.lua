-- The header of a conversation, and the earlier append with an idempotency key.
local tombstone, key = take(), take()
if is_erased(tombstone) then return {'erased'} end
local fields = header()
if #fields == 0 then return {'missing'} end
return {'done', fields, key ~= '' and redis.call('HGET', KEYS[APPENDS_BY_KEY], key) or ''}
