-- What decides whether a fold may stand at a place.
local mark, id, start, stop = take(), take(), take_number(), take_number()
if erased(mark) then return {'erased'} end
local found = header()
if #found == 0 then return {'none'} end
local known = redis.call('HMGET', KEYS[HEADER], 'first', 'length')
local first, length = tonumber(known[1]), tonumber(known[2])
local number = redis.call('HGET', KEYS[FOLD_IDS], id)
local near = redis.call('ZREVRANGEBYSCORE', KEYS[STANDING], start, '-inf', 'LIMIT', 0, 1)
for _, other in ipairs(redis.call('ZRANGEBYSCORE', KEYS[STANDING], '(' .. start, '(' .. math.min(stop, length))) do
  near[#near + 1] = other
end
local folds = {}
for at, other in ipairs(near) do folds[at] = redis.call('HGET', KEYS[FOLDS], other) end
local cuts = splits(start, first, length) or splits(stop, first, length)
return {
  'done', found, number and redis.call('HGET', KEYS[FOLDS], number) or '',
  redis.call('HLEN', KEYS[FOLDS]), near, folds, cuts and 1 or 0,
}
