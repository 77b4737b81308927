-- Documents and leases.

ALTER TABLE minutebook.conversation ADD COLUMN documents bigint NOT NULL DEFAULT 0;  -- number of the newest document

-- Kinds and ids may be too long for an index, so their hashes are indexed.
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
    body bytea NOT NULL,                            -- JSON; the first byte says plain or deflated
    PRIMARY KEY (tenant, hash)
);
CREATE INDEX document_by_number ON minutebook.document (tenant, conversation, kind_hash, number);
CREATE INDEX document_by_end ON minutebook.document (tenant, kind_hash, expires_at) WHERE expires_at IS NOT NULL;

-- The conversation of a lease need not exist yet. Its id is stored as a hash, so that an erased id does not remain here.
CREATE SEQUENCE minutebook.fence;                   -- only grows, also when leases are deleted
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
    col record;
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
        -- Content is already compressed. It must not be sampled for statistics, because these outlive an erasure.
        FOR col IN
            SELECT attname AS name, atttypid = 'bytea'::regtype AND attstorage <> 'p' AS raw FROM pg_catalog.pg_attribute
            WHERE attrelid = relation AND attnum > 0 AND atttypid IN ('bytea'::regtype, 'text'::regtype)
                AND attname <> 'tenant'
        LOOP
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS 0', relation, col.name);
            IF col.raw THEN
                EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STORAGE EXTERNAL', relation, col.name);
            END IF;
        END LOOP;
    END LOOP;
END
$$;

GRANT SELECT, INSERT, UPDATE, DELETE ON minutebook.document, minutebook.lease TO minutebook_app;
GRANT USAGE ON SEQUENCE minutebook.fence TO minutebook_app;
