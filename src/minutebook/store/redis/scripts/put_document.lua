-- Put documents into a conversation, if what they were checked against is still there.
local mark, now = take(), take_number()
if erased(mark) then return {'erased'} end
if redis.call('EXISTS', KEYS[HEADER]) == 0 then return {'none'} end
local wanted = take_documents(take_number())
if documents_moved(VOID, wanted) then return {'moved'} end
local kept = put_documents(wanted)
keep_together(HEADER)
return {'done', kept, expired_documents(now)}
