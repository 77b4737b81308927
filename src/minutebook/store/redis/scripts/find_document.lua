-- The header of a conversation, and what was answered to a key.
local mark, key = take(), take()
if erased(mark) then return {'erased'} end
local found = header()
if #found == 0 then return {'none'} end
return {'done', found, key ~= '' and redis.call('HGET', KEYS[ANSWERS], key) or ''}
