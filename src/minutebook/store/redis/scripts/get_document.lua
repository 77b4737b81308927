-- One document, by its name, and whether the claim to it is void.
local mark, name = take(), take()
return {'done', redis.call('HGET', KEYS[DOCUMENTS], name) or '', redis.call('EXISTS', KEYS[VOID])}
