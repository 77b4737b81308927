-- Conversations, entries, folds, pins, idempotency keys, documents, leases and the search index.
-- Row-level security separates the tenants.

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
    documents bigint NOT NULL DEFAULT 0,            -- number of the newest document
    revision integer NOT NULL DEFAULT 0,            -- number of times that entries were trimmed
    requests integer NOT NULL DEFAULT 0,            -- highest number of a request
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
) PARTITION BY LIST (tenant);                       -- see `add_partition`

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

CREATE TABLE minutebook.blocked_recipient (
    blocked_at bigint NOT NULL
);
ALTER TABLE minutebook.blocked_recipient
    ADD COLUMN tenant text COLLATE "C" NOT NULL, ALTER COLUMN tenant SET STORAGE PLAIN,
    ADD COLUMN id bytea NOT NULL, ALTER COLUMN id SET STORAGE PLAIN,
    ADD PRIMARY KEY (tenant, id);

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
CREATE INDEX request_by_age ON minutebook.document (tenant, created_at) WHERE kind = 'request';

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

-- The search index: the tokens of entries and folds, see store/search.py. The owner's function `search` reads it.
CREATE TABLE minutebook.word (
    key bigint NOT NULL,                            -- conversation number * 2^32 + position of the first entry
    part smallint NOT NULL,                         -- counts the rows of entries that do not fit into one
    size smallint NOT NULL,                         -- number of entries, up to 32: they were appended together
    tenant text COLLATE "C" NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (tenant, key, part)
);
CREATE INDEX word_by_word ON minutebook.word USING gin (words) WITH (gin_pending_list_limit = 64);
ALTER TABLE minutebook.word ALTER COLUMN words SET STATISTICS 0;

-- Settings of the database that all its processes share.
CREATE TABLE minutebook.setting (
    name text PRIMARY KEY,
    value text NOT NULL
);

-- Tables that contain deleted rows until the next vacuum. Rows are only added, so that no transaction waits for another.
-- Not per tenant, since it only names tables.
CREATE TABLE minutebook.removed (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relation oid NOT NULL
);

CREATE TABLE minutebook.entry_others PARTITION OF minutebook.entry DEFAULT
    WITH (toast_tuple_target = 4064);               -- half a page: shorter values stay in the row

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
        -- The owner sees the rows of all tenants if it asks for them: for backups.
        EXECUTE format(
            'CREATE POLICY owner ON %s TO %I USING (current_setting(''minutebook.all_tenants'', true) = ''on'')',
            relation, current_user
        );
        EXECUTE format(
            'ALTER TABLE %s ALTER COLUMN tenant SET DEFAULT current_setting(''minutebook.tenant'', true)', relation
        );
    END LOOP;
END
$$;

GRANT USAGE ON SCHEMA minutebook TO minutebook_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON minutebook.conversation, minutebook.payload, minutebook.fold, minutebook.document,
    minutebook.lease TO minutebook_app;
GRANT SELECT, INSERT, DELETE ON minutebook.entry, minutebook.pin, minutebook.idempotency_key, minutebook.word
    TO minutebook_app;
GRANT SELECT, INSERT, UPDATE ON minutebook.setting TO minutebook_app;
GRANT SELECT, INSERT ON minutebook.tombstone TO minutebook_app;
GRANT SELECT, INSERT, DELETE ON minutebook.blocked_recipient TO minutebook_app;
GRANT USAGE ON SEQUENCE minutebook.fence TO minutebook_app;

CREATE FUNCTION minutebook.mark_removed(relations oid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog
AS $$
    INSERT INTO minutebook.removed (relation) SELECT unnest(relations)
$$;

-- Holds off transactions that block the recipients of new conversations, until this transaction ends.
CREATE FUNCTION minutebook.lock_new_recipients(conversations jsonb) RETURNS void
LANGUAGE sql
AS $$
    SELECT pg_advisory_xact_lock_shared(('x' || encode(substr(recipient_hash, 1, 8), 'hex'))::bit(64)::bigint)
    FROM jsonb_to_recordset(conversations) AS new (recipient_hash bytea)
    WHERE recipient_hash IS NOT NULL ORDER BY recipient_hash
$$;

-- Deletes the waiting jobs of conversations, if the database has a queue of jobs (jobs.sql).
CREATE FUNCTION minutebook.cancel_jobs(conversations text[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF to_regprocedure('minutebook_jobs.cancel(text[])') IS NOT NULL THEN
        EXECUTE 'SELECT minutebook_jobs.cancel($1)' USING conversations;
    END IF;
END
$$;

-- Writes a group of appends completely, or raises serialization_failure if the database is not in the state that the
-- client assumes: each header must have the version that the client saw, each lease must be the newest one,
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
    counts bigint[];                                -- the number of the newest document of each conversation
    is_stale boolean;
    counted bigint;
BEGIN
    PERFORM set_config('role', 'minutebook_app', true), set_config('minutebook.tenant', tenant_id, true),
        set_config('lock_timeout', lock_milliseconds, true), set_config('enable_seqscan', 'off', true);
    -- Before any row is locked, so that there is no deadlock with a transaction that blocks a recipient.
    PERFORM minutebook.lock_new_recipients(changes -> 'conversations');
    FOR change IN SELECT * FROM jsonb_to_recordset(changes -> 'conversations') AS new (
        ordinal integer, number bigint, expected_version bigint, version bigint, length integer, turns integer,
        lead integer, open_at integer, open_calls text, updated_at bigint, id text, id_hash bytea, recipient text,
        status text, labels text, created_at bigint, documents bigint, recipient_hash bytea, requests integer
    ) LOOP
        counted := change.documents;
        IF change.number IS NOT NULL THEN
            UPDATE minutebook.conversation SET version = change.version, length = change.length, turns = change.turns,
                lead = change.lead, open_at = change.open_at, open_calls = change.open_calls, updated_at = change.updated_at,
                documents = documents + change.documents, requests = greatest(requests, change.requests)
            WHERE tenant = tenant_id AND number = change.number AND version = change.expected_version
            RETURNING documents INTO counted;
            is_stale := NOT FOUND;
        ELSE
            INSERT INTO minutebook.conversation (tenant, id, recipient, status, version, length, turns, lead, first,
                open_at, open_calls, labels, created_at, updated_at, status_updated_at, documents, requests)
            VALUES (tenant_id, change.id, change.recipient, change.status, change.version, change.length, change.turns,
                change.lead, 0, change.open_at, change.open_calls, change.labels, change.created_at,
                change.updated_at, change.created_at, change.documents, change.requests)
            ON CONFLICT (tenant, id) DO NOTHING RETURNING number INTO change.number;
            -- The tombstone is checked after the insert, so that a concurrent erasure cannot be missed.
            is_stale := NOT FOUND
                OR EXISTS (SELECT FROM minutebook.tombstone WHERE tenant = tenant_id AND id = change.id_hash)
                OR EXISTS (SELECT FROM minutebook.blocked_recipient WHERE tenant = tenant_id AND id = change.recipient_hash);
        END IF;
        IF is_stale THEN
            RAISE serialization_failure USING MESSAGE = 'the conversation was changed by another transaction';
        END IF;
        numbers[change.ordinal] := change.number;
        counts[change.ordinal] := counted - change.documents;
    END LOOP;
    IF changes ? 'leases' THEN
        FOR change IN SELECT * FROM jsonb_to_recordset(changes -> 'leases') AS required (
            id bytea, holder text, fence bigint
        ) LOOP
            PERFORM FROM minutebook.lease WHERE tenant = tenant_id AND id = change.id AND holder = change.holder
                AND fence = change.fence FOR SHARE;
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
        INSERT INTO minutebook.word (tenant, key, part, size, words)
        SELECT tenant_id, (numbers[new.ordinal] << 32) + new.position, new.part, new.size,
            array_to_tsvector(string_to_array(new.words, ' '))
        FROM jsonb_to_recordset(changes -> 'words') AS new (
            ordinal integer, position bigint, part smallint, size smallint, words text
        );
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
                counts[change.ordinal] := counts[change.ordinal] + 1;
                INSERT INTO minutebook.document AS stored
                    (tenant, conversation, kind, id, kind_hash, hash, number, created_at, expires_at, body)
                VALUES (tenant_id, numbers[change.ordinal], change.kind, change.id, change.kind_hash, change.hash,
                    counts[change.ordinal], change.at, change.expires_at, change.body)
                ON CONFLICT (tenant, hash) DO UPDATE SET body = excluded.body, expires_at = excluded.expires_at
                    WHERE change.verdict = 'put' AND stored.conversation = excluded.conversation;
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

-- The position where the exchange of an entry begins: the last position up to it that is not a tool result. The entries
-- before stops[1] belong to owners[1], the next ones before stops[2] to owners[2], and so on.
CREATE FUNCTION minutebook.exchange_start(tenant_id text, owners bigint[], stops integer[], of_position integer)
RETURNS integer LANGUAGE plpgsql STABLE
AS $$
DECLARE
    start integer;
BEGIN
    FOR i IN REVERSE cardinality(owners)..1 LOOP
        SELECT position INTO start FROM minutebook.entry
        WHERE tenant = tenant_id AND conversation = owners[i] AND role <> 3 AND position <= of_position
            AND position < stops[i] AND (i = 1 OR position >= stops[i - 1])
        ORDER BY position DESC LIMIT 1;
        EXIT WHEN FOUND;
    END LOOP;
    RETURN start;                                   -- NULL if it was purged
END
$$;

-- The position after the exchange of an entry.
CREATE FUNCTION minutebook.exchange_stop(tenant_id text, owners bigint[], stops integer[], of_position integer)
RETURNS integer LANGUAGE plpgsql STABLE
AS $$
DECLARE
    stop integer;
BEGIN
    FOR i IN 1..cardinality(owners) LOOP
        CONTINUE WHEN stops[i] <= of_position;
        SELECT position INTO stop FROM minutebook.entry
        WHERE tenant = tenant_id AND conversation = owners[i] AND role <> 3 AND position > of_position
            AND position < stops[i] AND (i = 1 OR position >= stops[i - 1])
        ORDER BY position LIMIT 1;
        EXIT WHEN FOUND;
    END LOOP;
    RETURN coalesce(stop, stops[cardinality(stops)]);
END
$$;

-- Loads a part of a conversation from one snapshot. See `ConversationStore.load`; `id_hash` finds the tombstone. No rows:
-- the conversation does not exist. `key` of a row is kind * 2^40 + number * 2^32 + position. The kinds are:
-- 0: it was erased. 1: the header as JSON in `a`, then the start and stop of the part. 2: a pin. 3: an active fold: start,
-- and in `a` to `c` id, body and stop. 4: an entry: number is the role, and `a` to `c` are metadata, text and rest.
CREATE FUNCTION minutebook.load(
    tenant_id text, conversation_id text, id_hash bytea, turn_count integer, message_count integer, since integer,
    max_entries integer, is_folded boolean
)
RETURNS TABLE (key bigint, a bytea, b bytea, c bytea)
LANGUAGE plpgsql STABLE ROWS 30
AS $$
#variable_conflict use_column
DECLARE
    header record;
    owners bigint[];                                -- the conversations that store the entries, in order of position
    stops integer[];                                -- the position after the last entry of each
    start_at integer;
    stop_at integer;
    missing integer;
    counted integer;
    parts int4multirange;
    pinned integer;
BEGIN
    PERFORM set_config('role', 'minutebook_app', true), set_config('minutebook.tenant', tenant_id, true),
        set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true);
    SELECT number, length, turns, lead, first, lineage, json_build_array(
        number, tenant, id, recipient, status, version, length, turns, lead, first, open_at, open_calls, labels,
        created_at, updated_at, status_updated_at, origin_id, origin_position, lineage, revision, requests
    )::text AS columns
    INTO header FROM minutebook.conversation WHERE tenant = tenant_id AND id = conversation_id;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 0::bigint, NULL::bytea, NULL::bytea, NULL::bytea
            FROM minutebook.tombstone WHERE tenant = tenant_id AND id = id_hash;
        RETURN;
    END IF;
    IF header.lineage IS NOT NULL THEN
        SELECT array_agg((source ->> 0)::bigint ORDER BY i), array_agg((source ->> 1)::integer ORDER BY i)
        INTO owners, stops FROM jsonb_array_elements(header.lineage::jsonb) WITH ORDINALITY AS part (source, i);
    END IF;
    owners := owners || header.number;
    stops := stops || header.length;
    IF message_count IS NOT NULL THEN
        start_at := greatest(header.first, header.length - message_count);
        IF start_at < header.length THEN
            start_at := minutebook.exchange_start(tenant_id, owners, stops, start_at);
        END IF;
    ELSIF turn_count IS NULL THEN
        start_at := least(coalesce(since, 0), header.length);
    ELSIF turn_count = 0 THEN
        start_at := header.length;
    ELSIF turn_count < header.turns THEN
        missing := turn_count;
        FOR i IN REVERSE cardinality(owners)..1 LOOP
            SELECT min(position), count(*) INTO start_at, counted FROM (
                SELECT position FROM minutebook.entry
                WHERE tenant = tenant_id AND conversation = owners[i] AND role = 1 AND position < stops[i]
                    AND position >= CASE WHEN i = 1 THEN header.first ELSE stops[i - 1] END
                ORDER BY position DESC LIMIT missing
            ) AS turn;
            missing := missing - counted;
            EXIT WHEN missing = 0;
        END LOOP;
        IF missing > 0 THEN                         -- the others were purged
            start_at := NULL;
        END IF;
    END IF;
    start_at := greatest(header.first, start_at);
    stop_at := least(start_at + coalesce(max_entries, header.length), header.length);
    parts := int4multirange(int4range(start_at, stop_at));
    IF is_folded THEN
        parts := parts + int4multirange(int4range(header.first, greatest(header.first, header.lead)));
        FOR pinned IN SELECT position FROM minutebook.pin WHERE tenant = tenant_id AND conversation = header.number LOOP
            parts := parts + int4multirange(int4range(
                greatest(header.first, minutebook.exchange_start(tenant_id, owners, stops, pinned)),
                minutebook.exchange_stop(tenant_id, owners, stops, pinned)
            ));
        END LOOP;
        SELECT parts - coalesce(range_agg(int4range(start, stop)), int4multirange()) INTO parts FROM minutebook.fold
        WHERE tenant = tenant_id AND conversation = header.number AND undone_at IS NULL AND covered_by IS NULL;
    END IF;
    RETURN QUERY
        SELECT 1::bigint << 40, convert_to(header.columns, 'UTF8'), int4send(start_at), int4send(stop_at)
        UNION ALL
        SELECT (2::bigint << 40) + position, NULL, NULL, NULL
        FROM minutebook.pin WHERE tenant = tenant_id AND conversation = header.number
        UNION ALL (
            SELECT (3::bigint << 40) + start, convert_to(id, 'UTF8'), body, int4send(stop) FROM minutebook.fold
            WHERE tenant = tenant_id AND conversation = header.number AND undone_at IS NULL AND covered_by IS NULL
                AND stop > CASE WHEN is_folded THEN 0 ELSE start_at END
            -- Active folds do not overlap, so a range has at most as many of them as positions.
            ORDER BY stop LIMIT CASE WHEN is_folded THEN header.length ELSE stop_at - start_at END
        );
    FOR i IN 1..cardinality(owners) LOOP
        RETURN QUERY SELECT (4::bigint << 40) + (entry.role::bigint << 32) + entry.position, entry.metadata,
            CASE WHEN get_byte(entry.text, 0) = 2
                THEN (SELECT body FROM minutebook.payload WHERE tenant = tenant_id AND hash = substr(entry.text, 2))
                ELSE entry.text END,
            CASE WHEN get_byte(entry.rest, 0) = 2
                THEN (SELECT body FROM minutebook.payload WHERE tenant = tenant_id AND hash = substr(entry.rest, 2))
                ELSE entry.rest END
        FROM unnest(parts) AS part CROSS JOIN LATERAL (
            SELECT * FROM minutebook.entry
            WHERE tenant = tenant_id AND conversation = owners[i] AND position < least(upper(part), stops[i])
                AND position >= greatest(lower(part), CASE WHEN i = 1 THEN 0 ELSE stops[i - 1] END)
            ORDER BY position OFFSET 0
        ) AS entry;
    END LOOP;
END
$$;

-- Acquires the lease on a conversation, or extends it if the holder has it, and loads a part of the conversation if
-- `is_loaded`. The first row is (5 * 2^40, holder, fence, until), or (6 * 2^40, …) with the lease of another holder;
-- then follow the rows of `load`.
CREATE FUNCTION minutebook.acquire_lease(
    tenant_id text, lock_milliseconds text, id_hash bytea, lock_key bigint, new_holder text, seconds double precision,
    is_loaded boolean, conversation_id text, turn_count integer, message_count integer, since integer,
    max_entries integer, is_folded boolean
)
RETURNS TABLE (key bigint, a bytea, b bytea, c bytea)
LANGUAGE plpgsql ROWS 30
AS $$
#variable_conflict use_column
DECLARE
    now_at bigint;
BEGIN
    PERFORM set_config('role', 'minutebook_app', true), set_config('minutebook.tenant', tenant_id, true),
        set_config('lock_timeout', lock_milliseconds, true), set_config('enable_seqscan', 'off', true),
        set_config('plan_cache_mode', 'force_generic_plan', true);
    PERFORM pg_advisory_xact_lock(lock_key);        -- so that a fence is taken after those of all earlier leases
    now_at := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    RETURN QUERY INSERT INTO minutebook.lease AS stored (tenant, id, holder, until)
        VALUES (tenant_id, id_hash, new_holder, now_at + (seconds * 1000000)::bigint)
        ON CONFLICT (tenant, id) DO UPDATE SET holder = excluded.holder, until = excluded.until,
            fence = CASE WHEN stored.until > now_at THEN stored.fence ELSE nextval('minutebook.fence') END
            WHERE stored.until <= now_at OR stored.holder = excluded.holder
        RETURNING 5::bigint << 40, convert_to(holder, 'UTF8'), int8send(fence), int8send(until);
    IF NOT FOUND THEN
        RETURN QUERY SELECT 6::bigint << 40, convert_to(holder, 'UTF8'), int8send(fence), int8send(until)
            FROM minutebook.lease WHERE tenant = tenant_id AND id = id_hash;
    ELSIF EXISTS (SELECT FROM minutebook.tombstone WHERE tenant = tenant_id AND id = id_hash) THEN
        -- Checked after the insert: an erasure may have deleted the lease while this waited for its lock.
        DELETE FROM minutebook.lease WHERE tenant = tenant_id AND id = id_hash;
        RETURN QUERY SELECT 0::bigint, NULL::bytea, NULL::bytea, NULL::bytea;
    ELSIF is_loaded THEN
        RETURN QUERY SELECT * FROM minutebook.load(
            tenant_id, conversation_id, id_hash, turn_count, message_count, since, max_entries, is_folded
        );
    END IF;
END
$$;

-- Extends leases of any tenants, also those that have expired but that no other holder has. Returns the new ends.
CREATE FUNCTION minutebook.renew_leases(lock_milliseconds text, leases jsonb, seconds double precision)
RETURNS TABLE (ordinal integer, until bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    own record;
BEGIN
    PERFORM set_config('role', 'minutebook_app', true), set_config('lock_timeout', lock_milliseconds, true),
        set_config('enable_seqscan', 'off', true);
    FOR own IN
        SELECT lease.tenant, jsonb_agg(lease) AS leases FROM jsonb_to_recordset(leases) AS lease (
            ordinal integer, tenant text, id bytea, holder text, fence bigint
        )
        GROUP BY lease.tenant ORDER BY lease.tenant
    LOOP
        PERFORM set_config('minutebook.tenant', own.tenant, true);
        RETURN QUERY UPDATE minutebook.lease
            SET until = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + (seconds * 1000000)::bigint
            FROM jsonb_to_recordset(own.leases) AS renewed (ordinal integer, id bytea, holder text, fence bigint)
            WHERE lease.tenant = own.tenant AND lease.id = renewed.id AND lease.holder = renewed.holder
                AND lease.fence = renewed.fence
            RETURNING renewed.ordinal, lease.until;
    END LOOP;
END
$$;

CREATE FUNCTION minutebook.release_lease(tenant_id text, lock_milliseconds text, id_hash bytea, own_fence bigint)
RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_config('role', 'minutebook_app', true), set_config('minutebook.tenant', tenant_id, true),
        set_config('lock_timeout', lock_milliseconds, true), set_config('enable_seqscan', 'off', true);
    DELETE FROM minutebook.lease WHERE tenant = tenant_id AND id = id_hash AND fence = own_fence;
END
$$;

-- The rows of the transaction's tenant whose tokens match and that have keys from `start` to before `stop`, last first, as
-- ranges of keys. Runs as the owner, because row-level security keeps an index of words from being used; so its policy does
-- not apply to the owner. Frequent words are found among the newest rows. Of the others, up to 2,000 matches are read from
-- the index of words; if there are more, reading rows from last to first finds enough soon. Without statistics of words the
-- planner cannot tell these cases apart, so each of the three queries can use one index only, and none sorts the rows of a
-- tenant.
ALTER TABLE minutebook.word NO FORCE ROW LEVEL SECURITY;
CREATE FUNCTION minutebook.search(query text, start bigint, stop bigint, max_rows integer)
RETURNS SETOF int8range LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog SET enable_seqscan = off SET enable_sort = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    tenant_id text := current_setting('minutebook.tenant');
    tokens tsquery := query::tsquery;
    first_key bigint := start - 31;                 -- a row has up to 32 keys
    newest int8range[];
    older int8range[];
    scanned_from bigint;
    scanned integer;
BEGIN
    SELECT array_agg(DISTINCT int8range(recent.key, recent.key + recent.size)) FILTER (WHERE recent.words @@ tokens),
        min(recent.key), count(*)
    INTO newest, scanned_from, scanned
    FROM (
        SELECT word.key, word.size, word.words FROM minutebook.word
        WHERE word.tenant = tenant_id AND word.key >= first_key AND word.key < stop AND word.key + word.size > start
        ORDER BY word.key DESC LIMIT 1000
    ) AS recent;
    IF coalesce(cardinality(newest), 0) < max_rows AND scanned = 1000 THEN
        PERFORM set_config('enable_bitmapscan', 'on', true);    -- until the function ends
        older := ARRAY(
            SELECT int8range(word.key, word.key + word.size) FROM minutebook.word
            WHERE word.words @@ tokens AND word.tenant || '' = tenant_id
                AND word.key + word.size > start AND word.key + 0 <= scanned_from
            LIMIT 2001
        );
        IF cardinality(older) > 2000 THEN
            PERFORM set_config('enable_bitmapscan', 'off', true);
            older := ARRAY(
                SELECT int8range(word.key, word.key + word.size) FROM minutebook.word
                WHERE (word.words @@ tokens) IS TRUE AND word.tenant = tenant_id
                    AND word.key >= first_key AND word.key <= scanned_from AND word.key + word.size > start
                ORDER BY word.key DESC, word.part DESC LIMIT max_rows
            );
        END IF;
    END IF;
    RETURN QUERY SELECT DISTINCT hit.keys FROM unnest(newest || older) AS hit (keys) ORDER BY hit.keys DESC LIMIT max_rows;
END
$$;

-- Adds a partition for a tenant, which the owner can detach or move to another disk; returns its name. The tenant's
-- entries are moved to it. The table `entry` is locked until the transaction ends.
CREATE FUNCTION minutebook.add_partition(tenant_id text) RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    name text := 'entry_' || left(md5(tenant_id), 12);
    col text;
BEGIN
    LOCK TABLE minutebook.entry;
    PERFORM set_config('minutebook.all_tenants', 'on', true);
    EXECUTE format(
        'CREATE TABLE minutebook.%I (LIKE minutebook.entry_others INCLUDING ALL) WITH (toast_tuple_target = 4064)', name
    );
    EXECUTE format('INSERT INTO minutebook.%I SELECT * FROM minutebook.entry_others WHERE tenant = $1', name)
        USING tenant_id;
    DELETE FROM minutebook.entry_others WHERE tenant = tenant_id;
    FOREACH col IN ARRAY ARRAY['metadata', 'text', 'rest'] LOOP
        EXECUTE format('ALTER TABLE minutebook.%I ALTER COLUMN %I SET STATISTICS 0', name, col);
    END LOOP;
    EXECUTE format('ALTER TABLE minutebook.entry ATTACH PARTITION minutebook.%I FOR VALUES IN (%L)', name, tenant_id);
    EXECUTE format('ALTER TABLE minutebook.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE minutebook.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format(
        'CREATE POLICY tenant ON minutebook.%I USING (tenant = current_setting(''minutebook.tenant'', true))', name
    );
    PERFORM minutebook.mark_removed(ARRAY['minutebook.entry_others'::regclass::oid]);
    PERFORM set_config('minutebook.all_tenants', 'off', true);
    RETURN name;
END
$$;

REVOKE ALL ON FUNCTION minutebook.mark_removed, minutebook.search, minutebook.add_partition FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.mark_removed, minutebook.search TO minutebook_app;
