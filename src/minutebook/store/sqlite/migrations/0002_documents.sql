-- What stands beside the record: documents, and who works on a conversation.

ALTER TABLE conversation ADD COLUMN documents INTEGER NOT NULL DEFAULT 0;  -- how many there ever were: the number of the last

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

-- A lease is on an id, which need not be a conversation yet. It is kept as a hash, so that no erased name stays here.
CREATE TABLE lease (
    fence INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used twice, also when leases are gone
    id BLOB NOT NULL UNIQUE,
    holder TEXT NOT NULL,
    until INTEGER NOT NULL
);
