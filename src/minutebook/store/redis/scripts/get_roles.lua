-- The letters of the roles of all entries.
local tombstone, nonce = take(), take()
if is_erased(tombstone) then return {'erased'} end
local stored = redis.call('HGET', KEYS[HEADER], 'nonce')
if not stored then return {'missing'} end
if stored ~= nonce then return {'conflict'} end
return {'done', redis.call('GET', KEYS[ROLES]) or ''}
