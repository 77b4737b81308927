-- Conversations, entries, folds, pins, idempotency keys and the search index. Row-level security separates the tenants.

CREATE SCHEMA minutebook;

CREATE TABLE minutebook.conversation (
    number bigint GENERATED ALWAYS AS IDENTITY,     -- never reused, so a late row cannot join another conversation
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    recipient text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    length integer NOT NULL,
    turns integer NOT NULL,
    lead integer NOT NULL,
    first integer NOT NULL,
    open_at integer,
    open_calls text,                                -- JSON, in ASCII
    labels text,                                    -- JSON, in ASCII
    created_at bigint NOT NULL,                     -- this and every other time: microseconds since 1970, UTC
    updated_at bigint NOT NULL,
    status_updated_at bigint NOT NULL,
    origin bigint,                                  -- the number of the conversation that this one was forked from
    origin_id text COLLATE "C",
    origin_position integer,
    lineage text,                                   -- JSON: [number, stop] of each range read from another conversation
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 85);                           -- every append updates this row: leave room in its page
CREATE UNIQUE INDEX conversation_by_number ON minutebook.conversation (tenant, number);
CREATE INDEX conversation_by_recipient ON minutebook.conversation (tenant, recipient, created_at DESC, id)
    WHERE recipient <> id;                          -- otherwise the id finds it
CREATE INDEX conversation_by_status ON minutebook.conversation (tenant, status, created_at DESC, id);
CREATE INDEX conversation_by_origin ON minutebook.conversation (tenant, origin) WHERE origin IS NOT NULL;

CREATE TABLE minutebook.entry (
    conversation bigint NOT NULL,
    position integer NOT NULL,
    turn integer NOT NULL,                          -- number of user messages up to and including this one
    role smallint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    metadata bytea NOT NULL,                        -- see `EntryMetadata` in entries.py
    text bytea,                                     -- the first byte of text and rest: plain, deflated,
    rest bytea,                                     -- or the hash of a payload follows
    PRIMARY KEY (tenant, conversation, position)    -- a ninth column would add 8 bytes to every row
) PARTITION BY HASH (conversation);

CREATE TABLE minutebook.payload (
    tenant text COLLATE "C" NOT NULL,
    hash bytea NOT NULL,
    uses bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, hash)
) WITH (toast_tuple_target = 4064);

CREATE TABLE minutebook.fold (
    tenant text COLLATE "C" NOT NULL,
    conversation bigint NOT NULL,
    number integer NOT NULL,                        -- counts the folds of a conversation
    id text COLLATE "C" NOT NULL,
    start integer NOT NULL,
    stop integer NOT NULL,
    body bytea NOT NULL,                            -- JSON: reason and shown messages
    created_at bigint NOT NULL,
    undone_at bigint,
    sealed boolean NOT NULL,
    covered_by integer,                             -- number of the fold that replaced it
    PRIMARY KEY (tenant, conversation, number)
);
CREATE UNIQUE INDEX fold_by_id ON minutebook.fold (tenant, conversation, id);
CREATE INDEX fold_active ON minutebook.fold (tenant, conversation, stop)
    WHERE undone_at IS NULL AND covered_by IS NULL;

-- STORAGE PLAIN: the values are short, so these tables need no TOAST table.
CREATE TABLE minutebook.pin (
    conversation bigint NOT NULL,
    position integer NOT NULL
);
ALTER TABLE minutebook.pin
    ADD COLUMN tenant text COLLATE "C" NOT NULL, ALTER COLUMN tenant SET STORAGE PLAIN,
    ADD PRIMARY KEY (tenant, conversation, position);

CREATE TABLE minutebook.idempotency_key (
    conversation bigint NOT NULL,
    version bigint NOT NULL
);
ALTER TABLE minutebook.idempotency_key
    ADD COLUMN tenant text COLLATE "C" NOT NULL, ALTER COLUMN tenant SET STORAGE PLAIN,
    ADD COLUMN key bytea NOT NULL, ALTER COLUMN key SET STORAGE PLAIN,
    ADD COLUMN digest bytea NOT NULL, ALTER COLUMN digest SET STORAGE PLAIN,
    ADD PRIMARY KEY (tenant, conversation, key);

CREATE TABLE minutebook.tombstone (
    erased_at bigint NOT NULL
);
ALTER TABLE minutebook.tombstone
    ADD COLUMN tenant text COLLATE "C" NOT NULL, ALTER COLUMN tenant SET STORAGE PLAIN,
    ADD COLUMN id bytea NOT NULL, ALTER COLUMN id SET STORAGE PLAIN,
    ADD PRIMARY KEY (tenant, id);

-- The search index: the tokens of each entry and fold, see store/search.py. The owner's function `search` reads it.
CREATE TABLE minutebook.word (
    key bigint NOT NULL,                            -- conversation number * 2^32 + position
    part integer NOT NULL,                          -- counts the rows of an entry that does not fit into one
    tenant text COLLATE "C" NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (tenant, key, part)
);
CREATE INDEX word_by_word ON minutebook.word USING gin (words) WITH (gin_pending_list_limit = 512);
ALTER TABLE minutebook.word ALTER COLUMN words SET STATISTICS 0;

-- Settings of the database that all its processes share.
CREATE TABLE minutebook.setting (
    name text PRIMARY KEY,
    value text NOT NULL
);

-- Tables that contain deleted rows until the next vacuum. Not per tenant, since it only names tables.
CREATE TABLE minutebook.removed (
    relation oid PRIMARY KEY,
    times bigint NOT NULL
);

DO $$
DECLARE
    part integer;
BEGIN
    FOR part IN 0..1 LOOP
        EXECUTE format(
            'CREATE TABLE minutebook.entry_%s PARTITION OF minutebook.entry FOR VALUES WITH (MODULUS 2, REMAINDER %s)'
            ' WITH (toast_tuple_target = 4064)',    -- half a page: shorter values stay in the row
            part, part
        );
    END LOOP;
END
$$;

-- Content is already compressed. It must not be sampled for statistics, because these outlive an erasure.
DO $$
DECLARE
    col record;
BEGIN
    FOR col IN
        SELECT attrelid::regclass AS relation, attname AS name, atttypid = 'bytea'::regtype AND attstorage <> 'p' AS raw
        FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = 'minutebook'::regnamespace AND relkind IN ('r', 'p') AND attnum > 0
            AND atttypid IN ('bytea'::regtype, 'text'::regtype)
            AND attname NOT IN ('tenant', 'status')
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS 0', col.relation, col.name);
        IF col.raw THEN
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STORAGE EXTERNAL', col.relation, col.name);
        END IF;
    END LOOP;
END
$$;

-- The role that all transactions run as. It owns nothing, so row-level security always applies to it.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'minutebook_app') THEN
        CREATE ROLE minutebook_app NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;                                           -- created concurrently by another database of this server
END
$$;
DO $$
DECLARE
    -- Since PostgreSQL 16, creating a role makes its creator a member who may grant it, but not SET ROLE to it.
    needed text := CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    IF NOT pg_catalog.pg_has_role(current_user, 'minutebook_app', needed) THEN
        EXECUTE format('GRANT minutebook_app TO %I', current_user);
    END IF;
END
$$;

DO $$
DECLARE
    relation regclass;
BEGIN
    FOR relation IN
        SELECT attrelid FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = 'minutebook'::regnamespace AND relkind IN ('r', 'p') AND attname = 'tenant'
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', relation);
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', relation);
        EXECUTE format(
            'CREATE POLICY tenant ON %s USING (tenant = current_setting(''minutebook.tenant'', true))', relation
        );
        EXECUTE format(
            'ALTER TABLE %s ALTER COLUMN tenant SET DEFAULT current_setting(''minutebook.tenant'', true)', relation
        );
    END LOOP;
END
$$;

GRANT USAGE ON SCHEMA minutebook TO minutebook_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON minutebook.conversation, minutebook.payload, minutebook.fold TO minutebook_app;
GRANT SELECT, INSERT, DELETE ON minutebook.entry, minutebook.pin, minutebook.idempotency_key, minutebook.word
    TO minutebook_app;
GRANT SELECT, INSERT, UPDATE ON minutebook.setting TO minutebook_app;
GRANT SELECT, INSERT ON minutebook.tombstone TO minutebook_app;

CREATE FUNCTION minutebook.mark_removed(relations oid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog
AS $$
    INSERT INTO minutebook.removed SELECT relation, 1 FROM unnest(relations) AS relation ORDER BY relation
    ON CONFLICT (relation) DO UPDATE SET times = removed.times + 1
$$;

-- Writes a group of appends completely, or raises serialization_failure if the database is not in the state that the
-- client assumes: each header must have the version that the client saw, each lease must be valid by the server's clock,
-- and idempotency keys and documents must be new unless the client says otherwise. Returns the conversation numbers.
-- Runs as minutebook_app, like every transaction. `changes` has only the lists that are not empty; `ordinal` is the number
-- of a conversation within `changes`, from 1. `bodies` are the payloads, concatenated.
CREATE FUNCTION minutebook.append(tenant_id text, lock_milliseconds text, changes jsonb, bodies bytea)
RETURNS jsonb LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    change record;
    numbers bigint[];
    is_stale boolean;
    counted bigint;
BEGIN
    PERFORM set_config('role', 'minutebook_app', true), set_config('minutebook.tenant', tenant_id, true),
        set_config('lock_timeout', lock_milliseconds, true), set_config('enable_seqscan', 'off', true);
    FOR change IN SELECT * FROM jsonb_to_recordset(changes -> 'conversations') AS new (
        ordinal integer, number bigint, expected_version bigint, version bigint, length integer, turns integer,
        lead integer, open_at integer, open_calls text, updated_at bigint, id text, id_hash bytea, recipient text,
        status text, labels text, created_at bigint
    ) LOOP
        IF change.number IS NOT NULL THEN
            UPDATE minutebook.conversation SET version = change.version, length = change.length, turns = change.turns,
                lead = change.lead, open_at = change.open_at, open_calls = change.open_calls, updated_at = change.updated_at
            WHERE tenant = tenant_id AND number = change.number AND version = change.expected_version;
            is_stale := NOT FOUND;
        ELSE
            INSERT INTO minutebook.conversation (tenant, id, recipient, status, version, length, turns, lead, first,
                open_at, open_calls, labels, created_at, updated_at, status_updated_at)
            VALUES (tenant_id, change.id, change.recipient, change.status, change.version, change.length, change.turns,
                change.lead, 0, change.open_at, change.open_calls, change.labels, change.created_at,
                change.updated_at, change.created_at)
            ON CONFLICT (tenant, id) DO NOTHING RETURNING number INTO change.number;
            -- The tombstone is checked after the insert, so that a concurrent erasure cannot be missed.
            is_stale := NOT FOUND
                OR EXISTS (SELECT FROM minutebook.tombstone WHERE tenant = tenant_id AND id = change.id_hash);
        END IF;
        IF is_stale THEN
            RAISE serialization_failure USING MESSAGE = 'the conversation was changed by another transaction';
        END IF;
        numbers[change.ordinal] := change.number;
    END LOOP;
    IF changes ? 'leases' THEN
        FOR change IN SELECT * FROM jsonb_to_recordset(changes -> 'leases') AS required (
            id bytea, holder text, fence bigint
        ) LOOP
            PERFORM FROM minutebook.lease WHERE tenant = tenant_id AND id = change.id AND holder = change.holder
                AND fence = change.fence AND until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FOR SHARE;
            IF NOT FOUND THEN
                RAISE serialization_failure USING MESSAGE = 'the lease is no longer valid';
            END IF;
        END LOOP;
    END IF;
    IF changes ? 'payloads' THEN
        INSERT INTO minutebook.payload (tenant, hash, uses, body)
        SELECT tenant_id, new.hash, new.uses, substr(bodies, new.start, new.size)
        FROM jsonb_to_recordset(changes -> 'payloads') AS new (hash bytea, uses bigint, start integer, size integer)
        ORDER BY new.hash ON CONFLICT (tenant, hash) DO UPDATE SET uses = payload.uses + excluded.uses;
    END IF;
    INSERT INTO minutebook.entry (tenant, conversation, position, role, turn, metadata, text, rest)
    SELECT tenant_id, numbers[new.ordinal], new.position, new.role, new.turn, new.metadata, new.text, new.rest
    FROM jsonb_to_recordset(changes -> 'entries') AS new (
        ordinal integer, position integer, role smallint, turn integer, metadata bytea, text bytea, rest bytea
    );
    IF changes ? 'words' THEN
        INSERT INTO minutebook.word (tenant, key, part, words)
        SELECT tenant_id, (numbers[new.ordinal] << 32) + new.position, new.part, new.words::tsvector
        FROM jsonb_to_recordset(changes -> 'words') AS new (ordinal integer, position bigint, part integer, words text);
    END IF;
    IF changes ? 'idempotency_keys' THEN
        INSERT INTO minutebook.idempotency_key (tenant, conversation, key, digest, version)
        SELECT tenant_id, numbers[new.ordinal], new.key, new.digest, new.version
        FROM jsonb_to_recordset(changes -> 'idempotency_keys') AS new (
            ordinal integer, key bytea, digest bytea, version bigint
        )
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS counted = ROW_COUNT;
        IF counted < jsonb_array_length(changes -> 'idempotency_keys') THEN
            RAISE serialization_failure USING MESSAGE = 'an idempotency key was already used';
        END IF;
    END IF;
    IF changes ? 'documents' THEN
        FOR change IN SELECT * FROM jsonb_to_recordset(changes -> 'documents') AS new (
            ordinal integer, verdict text, kind text, id text, kind_hash bytea, hash bytea, at bigint, expires_at bigint,
            body bytea
        ) LOOP
            CONTINUE WHEN change.verdict = 'same';
            IF change.verdict = 'replace' THEN
                UPDATE minutebook.document SET body = change.body, expires_at = change.expires_at
                WHERE tenant = tenant_id AND hash = change.hash AND conversation = numbers[change.ordinal];
            ELSE
                DELETE FROM minutebook.document WHERE tenant = tenant_id AND hash = change.hash AND expires_at <= change.at;
                UPDATE minutebook.conversation SET documents = documents + 1
                WHERE tenant = tenant_id AND number = numbers[change.ordinal] RETURNING documents INTO counted;
                INSERT INTO minutebook.document
                    (tenant, conversation, kind, id, kind_hash, hash, number, created_at, expires_at, body)
                VALUES (tenant_id, numbers[change.ordinal], change.kind, change.id, change.kind_hash, change.hash, counted,
                    change.at, change.expires_at, change.body)
                ON CONFLICT (tenant, hash) DO NOTHING;
            END IF;
            IF NOT FOUND THEN
                RAISE serialization_failure USING MESSAGE = 'the document was changed by another transaction';
            END IF;
        END LOOP;
        FOR change IN
            SELECT kind_hash, max(at) AS at
            FROM jsonb_to_recordset(changes -> 'documents') AS new (kind_hash bytea, at bigint) GROUP BY kind_hash
        LOOP                                        -- delete some expired documents, except locked ones
            DELETE FROM minutebook.document WHERE tenant = tenant_id AND hash IN (
                SELECT hash FROM minutebook.document WHERE tenant = tenant_id AND kind_hash = change.kind_hash
                    AND expires_at <= change.at LIMIT 100 FOR UPDATE SKIP LOCKED
            );
        END LOOP;
    END IF;
    IF changes ? 'releases' THEN
        DELETE FROM minutebook.lease USING jsonb_to_recordset(changes -> 'releases') AS released (id bytea, fence bigint)
        WHERE tenant = tenant_id AND lease.id = released.id AND lease.fence = released.fence;
    END IF;
    IF changes ? 'jobs' THEN
        PERFORM minutebook_jobs.enqueue_own(name) FROM jsonb_array_elements_text(changes -> 'jobs') AS name;
    END IF;
    RETURN to_jsonb(numbers);
END
$$;

-- The keys of the transaction's tenant whose tokens match, from `start` to before `stop`, last first. Runs as the owner,
-- because row-level security keeps an index of words from being used; so its policy does not apply to the owner.
-- Frequent words are found among the newest rows. Of the others, up to 2,000 matches are read from the index of words; if
-- there are more, reading rows from last to first finds enough soon. Without statistics of words the planner cannot tell
-- these cases apart, so each of the three queries can use one index only, and none sorts the rows of a tenant.
ALTER TABLE minutebook.word NO FORCE ROW LEVEL SECURITY;
CREATE FUNCTION minutebook.search(query text, start bigint, stop bigint, max_rows integer)
RETURNS SETOF bigint LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog SET enable_seqscan = off SET enable_sort = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    tenant_id text := current_setting('minutebook.tenant');
    tokens tsquery := query::tsquery;
    newest bigint[];
    older bigint[];
    scanned_from bigint;
    scanned integer;
BEGIN
    SELECT array_agg(DISTINCT recent.key) FILTER (WHERE recent.words @@ tokens), min(recent.key), count(*)
    INTO newest, scanned_from, scanned
    FROM (
        SELECT word.key, word.words FROM minutebook.word
        WHERE word.tenant = tenant_id AND word.key >= start AND word.key < stop ORDER BY word.key DESC LIMIT 1000
    ) AS recent;
    IF coalesce(cardinality(newest), 0) < max_rows AND scanned = 1000 THEN
        PERFORM set_config('enable_bitmapscan', 'on', true);    -- until the function ends
        older := ARRAY(
            SELECT word.key FROM minutebook.word
            WHERE word.words @@ tokens AND word.tenant || '' = tenant_id
                AND word.key + 0 >= start AND word.key + 0 <= scanned_from
            LIMIT 2001
        );
        IF cardinality(older) > 2000 THEN
            PERFORM set_config('enable_bitmapscan', 'off', true);
            older := ARRAY(
                SELECT word.key FROM minutebook.word
                WHERE (word.words @@ tokens) IS TRUE AND word.tenant = tenant_id
                    AND word.key >= start AND word.key <= scanned_from
                ORDER BY word.key DESC, word.part DESC LIMIT max_rows
            );
        END IF;
    END IF;
    RETURN QUERY SELECT DISTINCT hit.key FROM unnest(newest || older) AS hit (key) ORDER BY hit.key DESC LIMIT max_rows;
END
$$;

REVOKE ALL ON FUNCTION minutebook.mark_removed, minutebook.search FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.mark_removed, minutebook.search TO minutebook_app;
