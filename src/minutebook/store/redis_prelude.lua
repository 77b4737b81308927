-- What every script about a conversation shares. Its keys come first and in the order of `redis_keys.PARTS`.
local HEADER, ENTRIES, ROLES, TURNS, FOLDS, FOLD_IDS = 1, 2, 3, 4, 5, 6
local STANDING, PINS, ANSWERS, BLOBS, USES = 7, 8, 9, 10, 11
local PARTS = 11
local ORDER, TOMBSTONES, CHANGES, VOID = 12, 13, 14, 15

local function erased(mark)
  return redis.call('SISMEMBER', KEYS[TOMBSTONES], mark) == 1
end

local function header()
  return redis.call('HGETALL', KEYS[HEADER])
end

local function now_milliseconds()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- All keys of a conversation go at the same millisecond, so that no half of it is ever seen.
local function keep_together(first)
  local at = redis.call('HGET', KEYS[first], 'expires_at')
  if at then
    for part = first, first + PARTS - 1 do redis.call('PEXPIREAT', KEYS[part], at) end
  end
end

local function live_longer(first, milliseconds)
  if redis.call('EXISTS', KEYS[first]) == 1 then
    redis.call('HSET', KEYS[first], 'expires_at', string.format('%d', now_milliseconds() + milliseconds))
  end
  keep_together(first)
end

-- An entry begins with the number of its large payloads, and their digests.
local function digests_of(entry)
  local found = {}
  for at = 0, string.byte(entry, 1) - 1 do found[#found + 1] = string.sub(entry, 2 + at * 32, 33 + at * 32) end
  return found
end

local function remove_entries(first, start, stop)
  for position = start, stop - 1 do
    local entry = redis.call('HGET', KEYS[first + ENTRIES - 1], position)
    if entry then
      for _, digest in ipairs(digests_of(entry)) do
        if redis.call('HINCRBY', KEYS[first + USES - 1], digest, -1) <= 0 then
          redis.call('HDEL', KEYS[first + USES - 1], digest)
          redis.call('HDEL', KEYS[first + BLOBS - 1], digest)
        end
      end
      redis.call('HDEL', KEYS[first + ENTRIES - 1], position)
    end
  end
end

-- Whether a cut before this entry would part it from its call.
local function splits(position, first, length)
  return first < position and position < length
    and redis.call('GETRANGE', KEYS[ROLES], position, position) == 't'
end

-- The arguments, one after the other.
local place = 0
local function take()
  place = place + 1
  return ARGV[place]
end

local function take_number()
  return tonumber(take())
end

local function take_many(count)
  local taken = {}
  for at = 1, count do taken[at] = take() end
  return taken
end
