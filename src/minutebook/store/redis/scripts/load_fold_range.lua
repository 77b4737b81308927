-- What is needed to check a new fold: the header, the fold with the same id, the number of the new fold, the active folds
-- near its range, and whether its range splits an exchange.
local tombstone, id, start, stop = take(), take(), take_number(), take_number()
if is_erased(tombstone) then return {'erased'} end
local fields = header()
if #fields == 0 then return {'missing'} end
local bounds = redis.call('HMGET', KEYS[HEADER], 'first', 'length')
local first, length = tonumber(bounds[1]), tonumber(bounds[2])
local same_id = redis.call('HGET', KEYS[FOLD_IDS], id)
local near = redis.call('ZREVRANGEBYSCORE', KEYS[ACTIVE_FOLDS], start, '-inf', 'LIMIT', 0, 1)
local within = redis.call('ZRANGEBYSCORE', KEYS[ACTIVE_FOLDS], '(' .. start, '(' .. math.min(stop, length))
for _, number in ipairs(within) do near[#near + 1] = number end
local folds = {}
for index, number in ipairs(near) do folds[index] = redis.call('HGET', KEYS[FOLDS], number) end
local splits = splits_exchange(start, first, length) or splits_exchange(stop, first, length)
return {
  'done', fields, same_id and redis.call('HGET', KEYS[FOLDS], same_id) or '',
  redis.call('HLEN', KEYS[FOLDS]), near, folds, splits and 1 or 0,
}
