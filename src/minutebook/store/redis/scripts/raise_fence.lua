-- Reject appends under an older lease from now on, also for a conversation that does not exist yet.
local tombstone, fence, lifetime = take(), take_number(), take()
if is_erased(tombstone) then return {'erased'} end
if tonumber(redis.call('GET', KEYS[FENCE]) or '0') < fence then redis.call('SET', KEYS[FENCE], fence) end
if redis.call('EXISTS', KEYS[HEADER]) == 1 then
  align_expiry(HEADER)
else
  redis.call('PEXPIRE', KEYS[FENCE], lifetime)
end
return {'done'}
