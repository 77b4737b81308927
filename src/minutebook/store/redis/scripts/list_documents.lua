-- The documents of a kind that have not expired, by number.
local tombstone, low, high, backwards, limit, now = take(), take(), take(), take(), take_number(), take_number()
if is_erased(tombstone) then return {'erased'} end
if redis.call('EXISTS', KEYS[HEADER]) == 0 then return {'missing'} end
local BATCH = 100
local records, offset, members = {}, 0, nil
repeat
  if backwards ~= '' then
    members = redis.call('ZREVRANGEBYLEX', KEYS[DOCUMENT_ORDER], high, low, 'LIMIT', offset, BATCH)
  else
    members = redis.call('ZRANGEBYLEX', KEYS[DOCUMENT_ORDER], low, high, 'LIMIT', offset, BATCH)
  end
  for _, member in ipairs(members) do
    local key = string.sub(member, 1, 16) .. string.sub(member, 33)
    local expires_at = redis.call('ZSCORE', KEYS[DOCUMENT_EXPIRY], key)
    if #records < limit and (not expires_at or tonumber(expires_at) > now) then
      records[#records + 1] = redis.call('HGET', KEYS[DOCUMENTS], key)
    end
  end
  offset = offset + #members
until #members < BATCH or #records >= limit
return {'done', records}
