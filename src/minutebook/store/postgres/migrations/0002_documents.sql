-- What stands beside the record: documents, and who works on a conversation.

ALTER TABLE minutebook.conversation ADD COLUMN documents bigint NOT NULL DEFAULT 0;  -- how many there ever were

-- Kinds and ids may be longer than an index takes, so documents are found by their hashes.
CREATE TABLE minutebook.document (
    conversation bigint NOT NULL,
    number bigint NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    tenant text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    kind_hash bytea NOT NULL,
    hash bytea NOT NULL,                            -- of kind and id
    body bytea NOT NULL,                            -- JSON; its first byte says whether it is plain or deflated
    PRIMARY KEY (tenant, hash)
);
CREATE INDEX document_by_number ON minutebook.document (tenant, conversation, kind_hash, number);
CREATE INDEX document_by_end ON minutebook.document (tenant, kind_hash, expires_at) WHERE expires_at IS NOT NULL;

-- A lease is on an id, which need not be a conversation yet. It is kept as a hash, so that no erased name stays here.
CREATE SEQUENCE minutebook.fence;                   -- never goes back, also when leases are gone
CREATE TABLE minutebook.lease (
    fence bigint NOT NULL DEFAULT nextval('minutebook.fence'),
    until bigint NOT NULL
) WITH (fillfactor = 70);
ALTER TABLE minutebook.lease
    ADD COLUMN tenant text COLLATE "C" NOT NULL, ALTER COLUMN tenant SET STORAGE PLAIN,
    ADD COLUMN id bytea NOT NULL, ALTER COLUMN id SET STORAGE PLAIN,
    ADD COLUMN holder text COLLATE "C" NOT NULL, ALTER COLUMN holder SET STORAGE PLAIN,
    ADD PRIMARY KEY (tenant, id);

DO $$
DECLARE
    one record;
    relation regclass;
BEGIN
    FOREACH relation IN ARRAY ARRAY['minutebook.document', 'minutebook.lease']::regclass[] LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', relation);
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', relation);
        EXECUTE format(
            'CREATE POLICY tenant ON %s USING (tenant = current_setting(''minutebook.tenant'', true))', relation
        );
        EXECUTE format(
            'ALTER TABLE %s ALTER COLUMN tenant SET DEFAULT current_setting(''minutebook.tenant'', true)', relation
        );
        -- Content is compressed already, and must not be sampled for statistics, which outlive an erasure.
        FOR one IN
            SELECT attname AS name, atttypid = 'bytea'::regtype AND attstorage <> 'p' AS raw FROM pg_catalog.pg_attribute
            WHERE attrelid = relation AND attnum > 0 AND atttypid IN ('bytea'::regtype, 'text'::regtype)
                AND attname <> 'tenant'
        LOOP
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS 0', relation, one.name);
            IF one.raw THEN
                EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STORAGE EXTERNAL', relation, one.name);
            END IF;
        END LOOP;
    END LOOP;
END
$$;

GRANT SELECT, INSERT, UPDATE, DELETE ON minutebook.document, minutebook.lease TO minutebook_app;
GRANT USAGE ON SEQUENCE minutebook.fence TO minutebook_app;
