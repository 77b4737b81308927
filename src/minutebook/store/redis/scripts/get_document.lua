-- The record of a document by its key, and whether its claim is void.
local tombstone, key = take(), take()
return {'done', redis.call('HGET', KEYS[DOCUMENTS], key) or '', redis.call('EXISTS', KEYS[VOID])}
