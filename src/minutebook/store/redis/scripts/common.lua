-- What every script about a conversation shares. Its keys come first and in the order of `keys.PARTS`.
local HEADER, ENTRIES, ROLES, TURNS, FOLDS, FOLD_IDS = 1, 2, 3, 4, 5, 6
local STANDING, PINS, ANSWERS, BLOBS, USES = 7, 8, 9, 10, 11
local DOCUMENTS, DOCUMENT_ORDER, DOCUMENT_ENDS, FENCE = 12, 13, 14, 15
local PARTS = 15
local ORDER, TOMBSTONES, CHANGES, VOID = 16, 17, 18, 19

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

-- A document's name is 32 bytes: the hash of its kind, then that of kind and id. What is kept of it begins with its number
-- and the time it was made, each followed by a colon.
local function remove_document(name)
  local record = redis.call('HGET', KEYS[DOCUMENTS], name)
  if not record then return nil end
  local number = string.format('%016.0f', tonumber(string.match(record, '^%d+')))
  redis.call('ZREM', KEYS[DOCUMENT_ORDER], string.sub(name, 1, 16) .. number .. string.sub(name, 17))
  redis.call('ZREM', KEYS[DOCUMENT_ENDS], name)
  redis.call('HDEL', KEYS[DOCUMENTS], name)
  return record
end

-- What each of some documents was checked against, and what is to be done with it.
local function take_documents(count)
  local wanted = {}
  for at = 1, count do
    wanted[at] = {name = take(), before = take(), verdict = take(), made = take(), ends = take(), body = take()}
  end
  return wanted
end

-- Whether something else is there by now. From `voids` on, a key for each of them says whether its claim is void.
local function documents_moved(voids, wanted)
  for at, one in ipairs(wanted) do
    if one.verdict ~= 'same' and redis.call('EXISTS', KEYS[voids + at - 1]) == 1 then return true end
    local record = redis.call('HGET', KEYS[DOCUMENTS], one.name)
    if (record and redis.sha1hex(record) or '') ~= one.before then return true end
  end
  return false
end

local function put_documents(wanted)
  local kept = {}
  for at, one in ipairs(wanted) do
    if one.verdict ~= 'same' then
      local begins = string.match(redis.call('HGET', KEYS[DOCUMENTS], one.name) or '', '^%d+:%-?%d+:')
      if one.verdict == 'new' then
        remove_document(one.name)
        local number = redis.call('HINCRBY', KEYS[HEADER], 'documents', 1)
        begins = string.format('%.0f', number) .. ':' .. one.made .. ':'
        local place = string.sub(one.name, 1, 16) .. string.format('%016.0f', number) .. string.sub(one.name, 17)
        redis.call('ZADD', KEYS[DOCUMENT_ORDER], 0, place)
      end
      redis.call('HSET', KEYS[DOCUMENTS], one.name, begins .. one.body)
      if one.ends ~= '' then
        redis.call('ZADD', KEYS[DOCUMENT_ENDS], one.ends, one.name)
      else
        redis.call('ZREM', KEYS[DOCUMENT_ENDS], one.name)
      end
    end
    kept[at] = redis.call('HGET', KEYS[DOCUMENTS], one.name)
  end
  return kept
end

local function expired_documents(now)
  return redis.call('ZRANGEBYSCORE', KEYS[DOCUMENT_ENDS], '-inf', now, 'LIMIT', 0, 100)
end
