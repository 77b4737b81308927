-- The entries of some ranges and their large payloads. It is a conflict if an entry was removed or trimmed since the header
-- was read; other changes do not matter.
local tombstone, nonce, trims = take(), take(), take()
if is_erased(tombstone) then return {'erased'} end
local stored = redis.call('HMGET', KEYS[HEADER], 'nonce', 'trims')
if not stored[1] then return {'missing'} end
if stored[1] ~= nonce or (stored[2] or '0') ~= trims then return {'conflict'} end
local entries, payloads, seen = {}, {}, {}
while arguments_taken < #ARGV do
  for position = take_number(), take_number() - 1 do
    local entry = redis.call('HGET', KEYS[ENTRIES], position)
    if not entry then return {'conflict'} end
    entries[#entries + 1] = entry
    for _, digest in ipairs(digests_of(entry)) do
      if not seen[digest] then
        seen[digest] = true
        payloads[#payloads + 1] = digest
        payloads[#payloads + 1] = redis.call('HGET', KEYS[PAYLOADS], digest)
      end
    end
  end
end
return {'done', entries, payloads}
