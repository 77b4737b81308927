-- Documents and leases.

ALTER TABLE conversation ADD COLUMN documents INTEGER NOT NULL DEFAULT 0;  -- number of the newest document

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

-- The conversation of a lease need not exist yet. Its id is stored as a hash, so that an erased id does not remain here.
CREATE TABLE lease (
    fence INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused, also when leases are deleted
    id BLOB NOT NULL UNIQUE,
    holder TEXT NOT NULL,
    until INTEGER NOT NULL
);
