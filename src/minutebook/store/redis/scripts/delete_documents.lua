-- Remove a document and make the claim to it void, so that whoever is about to write under it asks again. With a time, only
-- if it has expired by then.
local mark, name, now, lifetime = take(), take(), take(), take()
local ends = redis.call('ZSCORE', KEYS[DOCUMENT_ENDS], name)
local record = redis.call('HGET', KEYS[DOCUMENTS], name)
if now ~= '' and record and not (ends and tonumber(ends) <= tonumber(now)) then return {'exists'} end
remove_document(name)
redis.call('SET', KEYS[VOID], '1', 'PX', lifetime)
return {'done', record or ''}
