-- Put documents into a conversation if the records that they were checked against have not changed.
local tombstone, now = take(), take_number()
if is_erased(tombstone) then return {'erased'} end
if redis.call('EXISTS', KEYS[HEADER]) == 0 then return {'missing'} end
local documents = take_documents(take_number())
if have_documents_changed(VOID, documents) then return {'conflict'} end
local records = put_documents(documents)
align_expiry(HEADER)
return {'done', records, expired_documents(now)}
