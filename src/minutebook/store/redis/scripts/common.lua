-- The shared part of all scripts on a conversation. Their first keys are those of `keys.PARTS`, in that order.
local HEADER, ENTRIES, ROLES, TURNS, FOLDS, FOLD_IDS = 1, 2, 3, 4, 5, 6
local ACTIVE_FOLDS, PINS, APPENDS_BY_KEY, PAYLOADS, USES = 7, 8, 9, 10, 11
local DOCUMENTS, DOCUMENT_ORDER, DOCUMENT_EXPIRY, FENCE = 12, 13, 14, 15
local PARTS = 15
local ORDER, TOMBSTONES, CHANGES, VOID = 16, 17, 18, 19

local function is_erased(tombstone)
  return redis.call('SISMEMBER', KEYS[TOMBSTONES], tombstone) == 1
end

local function header()
  return redis.call('HGETALL', KEYS[HEADER])
end

local function now_milliseconds()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- All keys of a conversation expire in the same millisecond, so that a part of it is never visible. `first` is the index of
-- its first key.
local function align_expiry(first)
  local expires_at = redis.call('HGET', KEYS[first], 'expires_at')
  if expires_at then
    for part = first, first + PARTS - 1 do redis.call('PEXPIREAT', KEYS[part], expires_at) end
  end
end

local function extend_lifetime(first, milliseconds)
  if redis.call('EXISTS', KEYS[first]) == 1 then
    redis.call('HSET', KEYS[first], 'expires_at', string.format('%d', now_milliseconds() + milliseconds))
  end
  align_expiry(first)
end

-- An entry begins with the number of its large payloads and their digests.
local function digests_of(entry)
  local digests = {}
  for index = 0, string.byte(entry, 1) - 1 do
    digests[#digests + 1] = string.sub(entry, 2 + index * 32, 33 + index * 32)
  end
  return digests
end

local function remove_entries(first, start, stop)
  for position = start, stop - 1 do
    local entry = redis.call('HGET', KEYS[first + ENTRIES - 1], position)
    if entry then
      for _, digest in ipairs(digests_of(entry)) do
        if redis.call('HINCRBY', KEYS[first + USES - 1], digest, -1) <= 0 then
          redis.call('HDEL', KEYS[first + USES - 1], digest)
          redis.call('HDEL', KEYS[first + PAYLOADS - 1], digest)
        end
      end
      redis.call('HDEL', KEYS[first + ENTRIES - 1], position)
    end
  end
end

-- Whether a cut before this position would separate a tool result from its call.
local function splits_exchange(position, first, length)
  return first < position and position < length
    and redis.call('GETRANGE', KEYS[ROLES], position, position) == 't'
end

-- Reads the arguments in order.
local arguments_taken = 0
local function take()
  arguments_taken = arguments_taken + 1
  return ARGV[arguments_taken]
end

local function take_number()
  return tonumber(take())
end

local function take_many(count)
  local arguments = {}
  for index = 1, count do arguments[index] = take() end
  return arguments
end

-- The key of a document has 32 bytes: the hash of its kind, then the hash of kind and id. Its record begins with its number
-- and creation time, each followed by a colon. In `DOCUMENT_ORDER` the number is between the two hashes.
local function remove_document(key)
  local record = redis.call('HGET', KEYS[DOCUMENTS], key)
  if not record then return nil end
  local number = string.format('%016.0f', tonumber(string.match(record, '^%d+')))
  redis.call('ZREM', KEYS[DOCUMENT_ORDER], string.sub(key, 1, 16) .. number .. string.sub(key, 17))
  redis.call('ZREM', KEYS[DOCUMENT_EXPIRY], key)
  redis.call('HDEL', KEYS[DOCUMENTS], key)
  return record
end

-- `before` is the hash of the record that a document was checked against, `verdict` how to write it.
local function take_documents(count)
  local documents = {}
  for index = 1, count do
    documents[index] = {
      key = take(), before = take(), verdict = take(), created_at = take(), expires_at = take(),
      request = take_number(), body = take(),
    }
  end
  return documents
end

-- Whether the documents were checked against records that have changed. `KEYS[first_void]` and the keys after it exist if
-- the claim of the respective document is void.
local function have_documents_changed(first_void, documents)
  for index, document in ipairs(documents) do
    if document.verdict ~= 'same' and redis.call('EXISTS', KEYS[first_void + index - 1]) == 1 then return true end
    local record = redis.call('HGET', KEYS[DOCUMENTS], document.key)
    if (record and redis.sha1hex(record) or '') ~= document.before then return true end
  end
  return false
end

-- Write documents, and return their records.
local function put_documents(documents)
  local records = {}
  for index, document in ipairs(documents) do
    local key = document.key
    if document.verdict ~= 'same' then
      local prefix = string.match(redis.call('HGET', KEYS[DOCUMENTS], key) or '', '^%d+:%-?%d+:')
      if document.verdict == 'new' then
        remove_document(key)
        local number = redis.call('HINCRBY', KEYS[HEADER], 'documents', 1)
        if document.request > tonumber(redis.call('HGET', KEYS[HEADER], 'requests') or '0') then
          redis.call('HSET', KEYS[HEADER], 'requests', document.request)
        end
        prefix = string.format('%.0f', number) .. ':' .. document.created_at .. ':'
        local member = string.sub(key, 1, 16) .. string.format('%016.0f', number) .. string.sub(key, 17)
        redis.call('ZADD', KEYS[DOCUMENT_ORDER], 0, member)
      end
      redis.call('HSET', KEYS[DOCUMENTS], key, prefix .. document.body)
      if document.expires_at ~= '' then
        redis.call('ZADD', KEYS[DOCUMENT_EXPIRY], document.expires_at, key)
      else
        redis.call('ZREM', KEYS[DOCUMENT_EXPIRY], key)
      end
    end
    records[index] = redis.call('HGET', KEYS[DOCUMENTS], key)
  end
  return records
end

local function expired_documents(now)
  return redis.call('ZRANGEBYSCORE', KEYS[DOCUMENT_EXPIRY], '-inf', now, 'LIMIT', 0, 100)
end
