-- Entries and their large payloads, if they are all still there. Unless some were trimmed, the moment does not matter.
local mark, nonce, trims = take(), take(), take()
if erased(mark) then return {'erased'} end
local known = redis.call('HMGET', KEYS[HEADER], 'nonce', 'trims')
if not known[1] then return {'none'} end
if known[1] ~= nonce or (known[2] or '0') ~= trims then return {'moved'} end
local entries, bodies, seen = {}, {}, {}
while place < #ARGV do
  for position = take_number(), take_number() - 1 do
    local entry = redis.call('HGET', KEYS[ENTRIES], position)
    if not entry then return {'moved'} end
    entries[#entries + 1] = entry
    for _, digest in ipairs(digests_of(entry)) do
      if not seen[digest] then
        seen[digest] = true
        bodies[#bodies + 1] = digest
        bodies[#bodies + 1] = redis.call('HGET', KEYS[BLOBS], digest)
      end
    end
  end
end
return {'done', entries, bodies}
