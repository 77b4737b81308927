-- Remove conversations of one recipient, if none was made or removed since they were chosen.
local ORDER, TOMBSTONES, CHANGES, LEAVING, LEAVING_DOCUMENTS, FIRST, PARTS = 1, 2, 3, 4, 5, 6, 15
if (redis.call('GET', KEYS[CHANGES]) or '0') ~= ARGV[1] then return {'moved'} end
if #KEYS < FIRST then return {'done', 0, 0, 0, 0} end
local gone, entries, folds, pins = 0, 0, 0, 0
redis.call('INCR', KEYS[CHANGES])
local argument = 3
for first = FIRST, #KEYS, PARTS do
  local id, mark, member = ARGV[argument], ARGV[argument + 1], ARGV[argument + 2]
  argument = argument + 3
  gone = gone + 1
  entries = entries + redis.call('HLEN', KEYS[first + 1])
  folds = folds + redis.call('HLEN', KEYS[first + 4])
  pins = pins + redis.call('SCARD', KEYS[first + 7])
  for _, name in ipairs(redis.call('HKEYS', KEYS[first + 11])) do
    redis.call('SADD', KEYS[LEAVING_DOCUMENTS], name .. id)
  end
  for part = first, first + PARTS - 1 do redis.call('DEL', KEYS[part]) end
  redis.call('ZREM', KEYS[ORDER], member)
  redis.call('SADD', KEYS[TOMBSTONES], mark)
  redis.call('SADD', KEYS[LEAVING], id)
end
-- The list of all refuses these ids for ever, by hashes. Here they only stop who is on the way already; the key's name
-- says whom they were about, so it must not stay.
redis.call('PEXPIRE', KEYS[TOMBSTONES], ARGV[2])
redis.call('PEXPIRE', KEYS[CHANGES], ARGV[2])
return {'done', gone, entries, folds, pins}
