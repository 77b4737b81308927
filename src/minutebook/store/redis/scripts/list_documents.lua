-- The documents of a kind, by their number, without those that have expired.
local mark, low, high, backwards, limit, now = take(), take(), take(), take(), take_number(), take_number()
if erased(mark) then return {'erased'} end
if redis.call('EXISTS', KEYS[HEADER]) == 0 then return {'none'} end
local AT_A_TIME = 100
local found, offset, members = {}, 0, nil
repeat
  if backwards ~= '' then
    members = redis.call('ZREVRANGEBYLEX', KEYS[DOCUMENT_ORDER], high, low, 'LIMIT', offset, AT_A_TIME)
  else
    members = redis.call('ZRANGEBYLEX', KEYS[DOCUMENT_ORDER], low, high, 'LIMIT', offset, AT_A_TIME)
  end
  for _, member in ipairs(members) do
    local name = string.sub(member, 1, 16) .. string.sub(member, 33)
    local ends = redis.call('ZSCORE', KEYS[DOCUMENT_ENDS], name)
    if #found < limit and (not ends or tonumber(ends) > now) then
      found[#found + 1] = redis.call('HGET', KEYS[DOCUMENTS], name)
    end
  end
  offset = offset + #members
until #members < AT_A_TIME or #found >= limit
return {'done', found}
