-- Who a conversation is with, by its id.
if redis.call('SISMEMBER', KEYS[3], ARGV[2]) == 1 then return {'erased'} end
return {'done', redis.call('HGET', KEYS[1], ARGV[1]) or ''}
