-- Conversations, entries, folds, pins, idempotency keys, documents, leases and the search index.

CREATE TABLE conversation (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused, so a late row cannot join another conversation
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    recipient TEXT NOT NULL,
    status TEXT NOT NULL,
    version INTEGER NOT NULL,
    length INTEGER NOT NULL,
    turns INTEGER NOT NULL,
    lead INTEGER NOT NULL,
    first INTEGER NOT NULL,
    open_at INTEGER,
    open_calls TEXT,                           -- JSON
    labels TEXT,                               -- JSON
    created_at INTEGER NOT NULL,               -- this and every other time: microseconds since 1970, UTC
    updated_at INTEGER NOT NULL,
    status_updated_at INTEGER NOT NULL,
    origin INTEGER,                            -- the number of the conversation that this one was forked from
    origin_id TEXT,
    origin_position INTEGER,
    lineage TEXT,                              -- JSON: [number, stop] of each range read from another conversation
    documents INTEGER NOT NULL DEFAULT 0,      -- number of the newest document
    revision INTEGER NOT NULL DEFAULT 0,       -- number of times that entries were trimmed
    requests INTEGER NOT NULL DEFAULT 0,       -- highest number of a request
    UNIQUE (tenant, id)
);
CREATE INDEX conversation_by_recipient ON conversation (tenant, recipient, created_at DESC, id)
    WHERE recipient <> id;                     -- otherwise the id finds it
CREATE INDEX conversation_by_status ON conversation (tenant, status, created_at DESC, id);
CREATE INDEX conversation_by_origin ON conversation (origin) WHERE origin IS NOT NULL;

CREATE TABLE entry (
    key INTEGER PRIMARY KEY,                   -- conversation number * 2^32 + position
    role INTEGER NOT NULL,
    turn INTEGER NOT NULL,                     -- number of user messages up to and including this one
    evaluation BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    source INTEGER,
    text,                                      -- a BLOB is the piece itself, an INTEGER the number of its payload
    rest
);

CREATE TABLE source (
    number INTEGER PRIMARY KEY,
    provider TEXT,
    model TEXT
);
CREATE UNIQUE INDEX source_names ON source (ifnull(provider, ''), ifnull(model, ''), provider IS NULL, model IS NULL);

CREATE TABLE payload (
    number INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    hash BLOB NOT NULL,
    uses INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (tenant, hash)
);

CREATE TABLE fold (
    conversation INTEGER NOT NULL,
    number INTEGER NOT NULL,                   -- counts the folds of a conversation
    id TEXT NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    body BLOB NOT NULL,                        -- JSON: reason and shown messages
    created_at INTEGER NOT NULL,
    undone_at INTEGER,
    sealed INTEGER NOT NULL,
    covered_by INTEGER,                        -- number of the fold that replaced it
    PRIMARY KEY (conversation, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX fold_by_id ON fold (conversation, id);
CREATE INDEX fold_active ON fold (conversation, stop) WHERE undone_at IS NULL AND covered_by IS NULL;

CREATE TABLE pin (
    conversation INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (conversation, position)
) WITHOUT ROWID;

CREATE TABLE idempotency_key (
    conversation INTEGER NOT NULL,
    key BLOB NOT NULL,
    digest BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (conversation, key)
) WITHOUT ROWID;

CREATE TABLE tombstone (
    id BLOB PRIMARY KEY,
    erased_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE blocked_recipient (
    id BLOB PRIMARY KEY,
    blocked_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE document (
    conversation INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    kind_hash BLOB NOT NULL,
    hash BLOB NOT NULL,                        -- of kind and id
    number INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX document_by_hash ON document (tenant, hash);
CREATE UNIQUE INDEX document_by_number ON document (conversation, kind_hash, number);
CREATE INDEX document_by_end ON document (tenant, kind_hash, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX request_by_age ON document (tenant, created_at) WHERE kind = 'request';

-- The conversation of a lease need not exist yet. Its id is stored as a hash, so that an erased id does not remain here.
CREATE TABLE lease (
    fence INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused, also when leases are deleted
    id BLOB NOT NULL UNIQUE,
    holder TEXT NOT NULL,
    until INTEGER NOT NULL
);

-- Settings of the database that all its processes share, see settings.py.
CREATE TABLE setting (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- The search index: the tokens of each entry and fold, see store/search.py. The texts are only in `entry` and `fold`.
CREATE VIRTUAL TABLE word USING fts5 (
    words, content = '', contentless_delete = 1, tokenize = 'ascii', detail = 'none'
);
INSERT INTO word (word, rank) VALUES ('pgsz', 1000);
CREATE TABLE pending_word (                    -- tokens that are not in `word` yet, see search.py
    key INTEGER PRIMARY KEY,
    words TEXT NOT NULL
);
