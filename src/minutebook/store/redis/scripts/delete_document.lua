-- Delete a document and void its claim, so that a concurrent writer must claim the key again. With a time, it is deleted
-- only if it has expired by then.
local tombstone, key, now, lifetime = take(), take(), take(), take()
local expires_at = redis.call('ZSCORE', KEYS[DOCUMENT_EXPIRY], key)
local record = redis.call('HGET', KEYS[DOCUMENTS], key)
if now ~= '' and record and not (expires_at and tonumber(expires_at) <= tonumber(now)) then return {'exists'} end
remove_document(key)
redis.call('SET', KEYS[VOID], '1', 'PX', lifetime)
return {'done', record or ''}
