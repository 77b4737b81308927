-- Replace entries by smaller ones, if they are still what those were made from.
local mark, nonce = take(), take()
if erased(mark) then return {'erased'} end
local known = redis.call('HGET', KEYS[HEADER], 'nonce')
if not known then return {'none'} end
if known ~= nonce then return {'moved'} end
local changes = {}
for at = 1, take_number() do
  local position, before, entry = take(), take(), take()
  changes[at] = {position, entry, take_many(2 * take_number())}
  if redis.sha1hex(redis.call('HGET', KEYS[ENTRIES], position) or '') ~= before then return {'moved'} end
end
for _, change in ipairs(changes) do
  local position, entry, blobs = unpack(change)
  remove_entries(HEADER, tonumber(position), tonumber(position) + 1)
  for at = 1, #blobs, 2 do
    redis.call('HSETNX', KEYS[BLOBS], blobs[at], blobs[at + 1])
    redis.call('HINCRBY', KEYS[USES], blobs[at], 1)
  end
  redis.call('HSET', KEYS[ENTRIES], position, entry)
end
redis.call('HINCRBY', KEYS[HEADER], 'trims', 1)
keep_together(HEADER)
return {'done'}
