-- Conversations, their entries, and what was decided about them. Every row says whose it is, and nobody sees another's.

CREATE SCHEMA minutebook;

CREATE TABLE minutebook.conversation (
    number bigint GENERATED ALWAYS AS IDENTITY,     -- never used twice, so that no late row can join another conversation
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    recipient text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    length integer NOT NULL,
    turns integer NOT NULL,
    lead integer NOT NULL,
    first integer NOT NULL,
    indexed integer NOT NULL,                       -- the words of the entries before this position can be searched
    behind boolean NOT NULL DEFAULT false,          -- whether there are entries after it
    open_at integer,
    open_calls text,                                -- JSON, in ASCII
    labels text,                                    -- JSON, in ASCII
    created_at bigint NOT NULL,                     -- this and every other time: microseconds since 1970, UTC
    updated_at bigint NOT NULL,
    status_updated_at bigint NOT NULL,
    origin bigint,                                  -- the number of the conversation that this one was forked from
    origin_id text COLLATE "C",
    origin_position integer,
    lineage text,                                   -- JSON: [number, stop] for each stretch that is read from another
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 85);                           -- the one row that every append changes: room to do so in its page
CREATE UNIQUE INDEX conversation_by_number ON minutebook.conversation (tenant, number);
CREATE INDEX conversation_by_recipient ON minutebook.conversation (tenant, recipient, created_at DESC, id)
    WHERE recipient <> id;                          -- the others are found by their id
CREATE INDEX conversation_by_status ON minutebook.conversation (tenant, status, created_at DESC, id);
CREATE INDEX conversation_by_origin ON minutebook.conversation (tenant, origin) WHERE origin IS NOT NULL;
CREATE INDEX conversation_behind ON minutebook.conversation (tenant, number) WHERE behind;

CREATE TABLE minutebook.entry (
    conversation bigint NOT NULL,
    position integer NOT NULL,
    turn integer NOT NULL,                          -- how many user messages there are up to here
    role smallint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    stamp bytea NOT NULL,                           -- who said it and when
    text bytea,                                     -- a piece: its first byte says whether it is plain, deflated,
    rest bytea,                                     -- or only the hash of a payload that holds it
    PRIMARY KEY (tenant, conversation, position)    -- with a ninth column every row would be 8 bytes longer
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
    number integer NOT NULL,                        -- in the order in which they were added
    id text COLLATE "C" NOT NULL,
    start integer NOT NULL,
    stop integer NOT NULL,
    body bytea NOT NULL,                            -- JSON: its reason and what it shows
    created_at bigint NOT NULL,
    undone_at bigint,
    sealed boolean NOT NULL,
    covered_by integer,                             -- the number of the fold that took its place
    PRIMARY KEY (tenant, conversation, number)
);
CREATE UNIQUE INDEX fold_by_id ON minutebook.fold (tenant, conversation, id);
CREATE INDEX fold_standing ON minutebook.fold (tenant, conversation, stop)
    WHERE undone_at IS NULL AND covered_by IS NULL;

-- What is short stays in its row, and needs no second table for what does not fit.
CREATE TABLE minutebook.pin (
    conversation bigint NOT NULL,
    position integer NOT NULL
);
ALTER TABLE minutebook.pin
    ADD COLUMN tenant text COLLATE "C" NOT NULL, ALTER COLUMN tenant SET STORAGE PLAIN,
    ADD PRIMARY KEY (tenant, conversation, position);

CREATE TABLE minutebook.answer (
    conversation bigint NOT NULL,
    version bigint NOT NULL
);
ALTER TABLE minutebook.answer
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

-- Which stretches of a conversation may have which words. A stretch is looked through once it is found, so a filter that
-- says which words are not there is enough, and takes a fraction of the text. It is short, and stays in its row.
CREATE TABLE minutebook.word (
    conversation bigint NOT NULL,
    start integer NOT NULL,
    stop integer NOT NULL
);
ALTER TABLE minutebook.word
    ADD COLUMN tenant text COLLATE "C" NOT NULL, ALTER COLUMN tenant SET STORAGE PLAIN,
    ADD COLUMN words bytea NOT NULL, ALTER COLUMN words SET STORAGE PLAIN,
    ADD PRIMARY KEY (tenant, conversation, start);

-- What holds deleted rows until the next vacuum. No tenant's: it names tables and nothing else.
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
            ' WITH (toast_tuple_target = 4064)',    -- half a page: what is shorter stays where it is
            part, part
        );
    END LOOP;
END
$$;

-- Content is compressed already, and must not be sampled for statistics, which outlive an erasure.
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT attrelid::regclass AS relation, attname AS name, atttypid = 'bytea'::regtype AND attstorage <> 'p' AS raw
        FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = 'minutebook'::regnamespace AND relkind IN ('r', 'p') AND attnum > 0
            AND atttypid IN ('bytea'::regtype, 'text'::regtype)
            AND attname NOT IN ('tenant', 'status')
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS 0', one.relation, one.name);
        IF one.raw THEN
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STORAGE EXTERNAL', one.relation, one.name);
        END IF;
    END LOOP;
END
$$;

-- The role that the store works as. It owns nothing, so that no policy is waived for it.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'minutebook_app') THEN
        CREATE ROLE minutebook_app NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;                                           -- another database of this server was being made at the same time
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
GRANT SELECT, INSERT, UPDATE, DELETE ON minutebook.conversation, minutebook.payload, minutebook.fold, minutebook.word
    TO minutebook_app;
GRANT SELECT, INSERT, DELETE ON minutebook.entry, minutebook.pin, minutebook.answer TO minutebook_app;
GRANT SELECT, INSERT ON minutebook.tombstone TO minutebook_app;

CREATE FUNCTION minutebook.mark_removed(relations oid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog
AS $$
    INSERT INTO minutebook.removed SELECT relation, 1 FROM unnest(relations) AS relation ORDER BY relation
    ON CONFLICT (relation) DO UPDATE SET times = removed.times + 1
$$;

-- Writes a group of appends: all of it, or, if anything is not as the client thinks, nothing. The client decides what is
-- written from headers that it may only remember, so every header is changed only at the version that was seen, every
-- lease must stand by the clock of this server, and no key or document may be there that the client does not know of.
-- Returns the numbers of the conversations. It works as the role that owns nothing, like every other transaction.
-- A list is in `changes` only if there is something in it; a `place` is 1 for the first of the conversations. Payloads
-- are large: what they hold comes beside, one after the other.
CREATE FUNCTION minutebook.append(whose text, patience text, changes jsonb, bodies bytea) RETURNS jsonb LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    one record;
    numbers bigint[];
    is_stale boolean;
    counted bigint;
BEGIN
    PERFORM set_config('role', 'minutebook_app', true), set_config('minutebook.tenant', whose, true),
        set_config('lock_timeout', patience, true), set_config('enable_seqscan', 'off', true);
    FOR one IN SELECT * FROM jsonb_to_recordset(changes -> 'conversations') AS new (
        place integer, number bigint, seen bigint, version bigint, length integer, turns integer, lead integer,
        open_at integer, open_calls text, updated_at bigint, id text, mark bytea, recipient text, status text,
        labels text, created_at bigint
    ) LOOP
        IF one.number IS NOT NULL THEN
            UPDATE minutebook.conversation SET version = one.version, length = one.length, turns = one.turns,
                lead = one.lead, open_at = one.open_at, open_calls = one.open_calls, updated_at = one.updated_at,
                behind = true
            WHERE tenant = whose AND number = one.number AND version = one.seen;
            is_stale := NOT FOUND;
        ELSE
            INSERT INTO minutebook.conversation (tenant, id, recipient, status, version, length, turns, lead, first,
                indexed, behind, open_at, open_calls, labels, created_at, updated_at, status_updated_at)
            VALUES (whose, one.id, one.recipient, one.status, one.version, one.length, one.turns, one.lead, 0,
                0, true, one.open_at, one.open_calls, one.labels, one.created_at, one.updated_at, one.created_at)
            ON CONFLICT (tenant, id) DO NOTHING RETURNING number INTO one.number;
            -- Whether it was erased meanwhile is asked last: nobody can come between any more.
            is_stale := NOT FOUND OR EXISTS (SELECT FROM minutebook.tombstone WHERE tenant = whose AND id = one.mark);
        END IF;
        IF is_stale THEN
            RAISE serialization_failure USING MESSAGE = 'somebody else has changed the conversation';
        END IF;
        numbers[one.place] := one.number;
    END LOOP;
    IF changes ? 'leases' THEN
        FOR one IN SELECT * FROM jsonb_to_recordset(changes -> 'leases') AS shown (id bytea, holder text, fence bigint) LOOP
            PERFORM FROM minutebook.lease WHERE tenant = whose AND id = one.id AND holder = one.holder
                AND fence = one.fence AND until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FOR SHARE;
            IF NOT FOUND THEN
                RAISE serialization_failure USING MESSAGE = 'the lease does not stand any more';
            END IF;
        END LOOP;
    END IF;
    IF changes ? 'payloads' THEN
        INSERT INTO minutebook.payload (tenant, hash, uses, body)
        SELECT whose, new.hash, new.uses, substr(bodies, new.start, new.size)
        FROM jsonb_to_recordset(changes -> 'payloads') AS new (hash bytea, uses bigint, start integer, size integer)
        ORDER BY new.hash ON CONFLICT (tenant, hash) DO UPDATE SET uses = payload.uses + excluded.uses;
    END IF;
    INSERT INTO minutebook.entry (tenant, conversation, position, role, turn, stamp, text, rest)
    SELECT whose, numbers[new.place], new.position, new.role, new.turn, new.stamp, new.text, new.rest
    FROM jsonb_to_recordset(changes -> 'entries') AS new (
        place integer, position integer, role smallint, turn integer, stamp bytea, text bytea, rest bytea
    );
    IF changes ? 'answers' THEN
        INSERT INTO minutebook.answer (tenant, conversation, key, digest, version)
        SELECT whose, numbers[new.place], new.key, new.digest, new.version
        FROM jsonb_to_recordset(changes -> 'answers') AS new (place integer, key bytea, digest bytea, version bigint)
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS counted = ROW_COUNT;
        IF counted < jsonb_array_length(changes -> 'answers') THEN
            RAISE serialization_failure USING MESSAGE = 'one of these was appended already';
        END IF;
    END IF;
    IF changes ? 'documents' THEN
        FOR one IN SELECT * FROM jsonb_to_recordset(changes -> 'documents') AS new (
            place integer, verdict text, kind text, id text, kind_hash bytea, hash bytea, at bigint, expires_at bigint,
            body bytea
        ) LOOP
            CONTINUE WHEN one.verdict = 'same';
            IF one.verdict = 'replace' THEN
                UPDATE minutebook.document SET body = one.body, expires_at = one.expires_at
                WHERE tenant = whose AND hash = one.hash AND conversation = numbers[one.place];
            ELSE
                DELETE FROM minutebook.document WHERE tenant = whose AND hash = one.hash AND expires_at <= one.at;
                UPDATE minutebook.conversation SET documents = documents + 1
                WHERE tenant = whose AND number = numbers[one.place] RETURNING documents INTO counted;
                INSERT INTO minutebook.document
                    (tenant, conversation, kind, id, kind_hash, hash, number, created_at, expires_at, body)
                VALUES (whose, numbers[one.place], one.kind, one.id, one.kind_hash, one.hash, counted, one.at,
                    one.expires_at, one.body)
                ON CONFLICT (tenant, hash) DO NOTHING;
            END IF;
            IF NOT FOUND THEN
                RAISE serialization_failure USING MESSAGE = 'somebody else has put or deleted the document';
            END IF;
        END LOOP;
        FOR one IN
            SELECT kind_hash, max(at) AS at
            FROM jsonb_to_recordset(changes -> 'documents') AS new (kind_hash bytea, at bigint) GROUP BY kind_hash
        LOOP                                        -- some of what has expired; what others hold is for another time
            DELETE FROM minutebook.document WHERE tenant = whose AND hash IN (
                SELECT hash FROM minutebook.document WHERE tenant = whose AND kind_hash = one.kind_hash
                    AND expires_at <= one.at LIMIT 100 FOR UPDATE SKIP LOCKED
            );
        END LOOP;
    END IF;
    IF changes ? 'releases' THEN
        DELETE FROM minutebook.lease USING jsonb_to_recordset(changes -> 'releases') AS given (id bytea, fence bigint)
        WHERE tenant = whose AND lease.id = given.id AND lease.fence = given.fence;
    END IF;
    IF changes ? 'jobs' THEN
        PERFORM minutebook_jobs.ask(name) FROM jsonb_array_elements_text(changes -> 'jobs') AS name;
    END IF;
    RETURN to_jsonb(numbers);
END
$$;

REVOKE ALL ON FUNCTION minutebook.mark_removed FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.mark_removed TO minutebook_app;
