-- Let nobody append under an older lease, also to a conversation that is only being made.
local mark, fence, lifetime = take(), take_number(), take()
if erased(mark) then return {'erased'} end
if tonumber(redis.call('GET', KEYS[FENCE]) or '0') < fence then redis.call('SET', KEYS[FENCE], fence) end
if redis.call('EXISTS', KEYS[HEADER]) == 1 then
  keep_together(HEADER)
else
  redis.call('PEXPIRE', KEYS[FENCE], lifetime)
end
return {'done'}
