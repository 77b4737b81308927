-- Erase conversations of one recipient if none was created or removed since they were selected. With a version, a conversation
-- has expired: nothing is removed if one of them has another version, and no tombstone is left.
local ORDER, TOMBSTONES, CHANGES, UNINDEXED, UNINDEXED_DOCUMENTS, FIRST, PARTS = 1, 2, 3, 4, 5, 6, 15
if (redis.call('GET', KEYS[CHANGES]) or '0') ~= ARGV[1] then return {'conflict'} end
if #KEYS < FIRST then return {'done', 0, 0, 0, 0} end
local argument = 3
for first = FIRST, #KEYS, PARTS do
  local version = ARGV[argument + 3]
  if version ~= '' and redis.call('HGET', KEYS[first], 'version') ~= version then return {'conflict'} end
  argument = argument + 4
end
local conversations, entries, folds, pins = 0, 0, 0, 0
redis.call('INCR', KEYS[CHANGES])
argument = 3
for first = FIRST, #KEYS, PARTS do
  local id, tombstone, member, version = ARGV[argument], ARGV[argument + 1], ARGV[argument + 2], ARGV[argument + 3]
  argument = argument + 4
  conversations = conversations + 1
  entries = entries + redis.call('HLEN', KEYS[first + 1])
  folds = folds + redis.call('HLEN', KEYS[first + 4])
  pins = pins + redis.call('SCARD', KEYS[first + 7])
  if version == '' then
    for _, key in ipairs(redis.call('HKEYS', KEYS[first + 11])) do
      redis.call('SADD', KEYS[UNINDEXED_DOCUMENTS], key .. id)
    end
    redis.call('SADD', KEYS[TOMBSTONES], tombstone)
    redis.call('SADD', KEYS[UNINDEXED], id)
  end
  for part = first, first + PARTS - 1 do redis.call('DEL', KEYS[part]) end
  redis.call('ZREM', KEYS[ORDER], member)
end
-- The tenant's index has the tombstones permanently. The copies here only stop operations that are already running, and
-- must expire, because the name of the key contains the recipient.
redis.call('PEXPIRE', KEYS[TOMBSTONES], ARGV[2])
redis.call('PEXPIRE', KEYS[CHANGES], ARGV[2])
return {'done', conversations, entries, folds, pins}
