SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA minutebook;
COMMENT ON SCHEMA minutebook IS 'minutebook schema 1';
CREATE FUNCTION minutebook.acquire_lease(tenant_id text, lock_milliseconds text, id_hash bytea, lock_key bigint, new_holder text, seconds double precision, is_loaded boolean, conversation_id text, turn_count integer, message_count integer, since integer, max_entries integer, is_folded boolean) RETURNS TABLE(key bigint, a bytea, b bytea, c bytea)
    LANGUAGE plpgsql ROWS 30
    AS $$
#variable_conflict use_column
DECLARE
    now_at bigint;
BEGIN
    PERFORM set_config('role', 'minutebook_app', true), set_config('minutebook.tenant', tenant_id, true),
        set_config('lock_timeout', lock_milliseconds, true), set_config('enable_seqscan', 'off', true),
        set_config('plan_cache_mode', 'force_generic_plan', true);
    PERFORM pg_advisory_xact_lock(lock_key);
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
        DELETE FROM minutebook.lease WHERE tenant = tenant_id AND id = id_hash;
        RETURN QUERY SELECT 0::bigint, NULL::bytea, NULL::bytea, NULL::bytea;
    ELSIF is_loaded THEN
        RETURN QUERY SELECT * FROM minutebook.load(
            tenant_id, conversation_id, id_hash, turn_count, message_count, since, max_entries, is_folded
        );
    END IF;
END
$$;
CREATE FUNCTION minutebook.add_partition(tenant_id text) RETURNS text
    LANGUAGE plpgsql
    AS $_$
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
$_$;
CREATE FUNCTION minutebook.append(tenant_id text, lock_milliseconds text, changes jsonb, bodies bytea) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
    change record;
    numbers bigint[];
    counts bigint[];
    is_stale boolean;
    counted bigint;
BEGIN
    PERFORM set_config('role', 'minutebook_app', true), set_config('minutebook.tenant', tenant_id, true),
        set_config('lock_timeout', lock_milliseconds, true), set_config('enable_seqscan', 'off', true);
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
        LOOP
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
CREATE FUNCTION minutebook.cancel_jobs(conversations text[]) RETURNS void
    LANGUAGE plpgsql
    AS $_$
BEGIN
    IF to_regprocedure('minutebook_jobs.cancel(text[])') IS NOT NULL THEN
        EXECUTE 'SELECT minutebook_jobs.cancel($1)' USING conversations;
    END IF;
END
$_$;
CREATE FUNCTION minutebook.exchange_start(tenant_id text, owners bigint[], stops integer[], of_position integer) RETURNS integer
    LANGUAGE plpgsql STABLE
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
    RETURN start;
END
$$;
CREATE FUNCTION minutebook.exchange_stop(tenant_id text, owners bigint[], stops integer[], of_position integer) RETURNS integer
    LANGUAGE plpgsql STABLE
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
CREATE FUNCTION minutebook.load(tenant_id text, conversation_id text, id_hash bytea, turn_count integer, message_count integer, since integer, max_entries integer, is_folded boolean) RETURNS TABLE(key bigint, a bytea, b bytea, c bytea)
    LANGUAGE plpgsql STABLE ROWS 30
    AS $$
#variable_conflict use_column
DECLARE
    header record;
    owners bigint[];
    stops integer[];
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
        IF missing > 0 THEN
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
CREATE FUNCTION minutebook.lock_new_recipients(conversations jsonb) RETURNS void
    LANGUAGE sql
    AS $$
    SELECT pg_advisory_xact_lock_shared(('x' || encode(substr(recipient_hash, 1, 8), 'hex'))::bit(64)::bigint)
    FROM jsonb_to_recordset(conversations) AS new (recipient_hash bytea)
    WHERE recipient_hash IS NOT NULL ORDER BY recipient_hash
$$;
CREATE FUNCTION minutebook.mark_removed(relations oid[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$
    INSERT INTO minutebook.removed (relation) SELECT unnest(relations)
$$;
CREATE FUNCTION minutebook.release_lease(tenant_id text, lock_milliseconds text, id_hash bytea, own_fence bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM set_config('role', 'minutebook_app', true), set_config('minutebook.tenant', tenant_id, true),
        set_config('lock_timeout', lock_milliseconds, true), set_config('enable_seqscan', 'off', true);
    DELETE FROM minutebook.lease WHERE tenant = tenant_id AND id = id_hash AND fence = own_fence;
END
$$;
CREATE FUNCTION minutebook.renew_leases(lock_milliseconds text, leases jsonb, seconds double precision) RETURNS TABLE(ordinal integer, until bigint)
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
CREATE FUNCTION minutebook.search(query text, start bigint, stop bigint, max_rows integer) RETURNS SETOF int8range
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    tenant_id text := current_setting('minutebook.tenant');
    tokens tsquery := query::tsquery;
    first_key bigint := start - 31;
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
        PERFORM set_config('enable_bitmapscan', 'on', true);
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
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE minutebook.blocked_recipient (
    blocked_at bigint NOT NULL,
    tenant text DEFAULT current_setting('minutebook.tenant'::text, true) NOT NULL COLLATE pg_catalog."C",
    id bytea NOT NULL
);
ALTER TABLE ONLY minutebook.blocked_recipient ALTER COLUMN tenant SET STORAGE PLAIN;
ALTER TABLE ONLY minutebook.blocked_recipient ALTER COLUMN id SET STATISTICS 0;
ALTER TABLE ONLY minutebook.blocked_recipient ALTER COLUMN id SET STORAGE PLAIN;
ALTER TABLE ONLY minutebook.blocked_recipient FORCE ROW LEVEL SECURITY;
CREATE TABLE minutebook.conversation (
    number bigint NOT NULL,
    tenant text DEFAULT current_setting('minutebook.tenant'::text, true) NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    recipient text NOT NULL COLLATE pg_catalog."C",
    status text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    length integer NOT NULL,
    turns integer NOT NULL,
    lead integer NOT NULL,
    first integer NOT NULL,
    open_at integer,
    open_calls text,
    labels text,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    status_updated_at bigint NOT NULL,
    origin bigint,
    origin_id text COLLATE pg_catalog."C",
    origin_position integer,
    lineage text,
    documents bigint DEFAULT 0 NOT NULL,
    revision integer DEFAULT 0 NOT NULL,
    requests integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='85');
ALTER TABLE ONLY minutebook.conversation ALTER COLUMN id SET STATISTICS 0;
ALTER TABLE ONLY minutebook.conversation ALTER COLUMN recipient SET STATISTICS 0;
ALTER TABLE ONLY minutebook.conversation ALTER COLUMN open_calls SET STATISTICS 0;
ALTER TABLE ONLY minutebook.conversation ALTER COLUMN labels SET STATISTICS 0;
ALTER TABLE ONLY minutebook.conversation ALTER COLUMN origin_id SET STATISTICS 0;
ALTER TABLE ONLY minutebook.conversation ALTER COLUMN lineage SET STATISTICS 0;
ALTER TABLE ONLY minutebook.conversation FORCE ROW LEVEL SECURITY;
ALTER TABLE minutebook.conversation ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME minutebook.conversation_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE minutebook.document (
    conversation bigint NOT NULL,
    number bigint NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    tenant text DEFAULT current_setting('minutebook.tenant'::text, true) NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    kind_hash bytea NOT NULL,
    hash bytea NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE ONLY minutebook.document ALTER COLUMN kind SET STATISTICS 0;
ALTER TABLE ONLY minutebook.document ALTER COLUMN id SET STATISTICS 0;
ALTER TABLE ONLY minutebook.document ALTER COLUMN kind_hash SET STATISTICS 0;
ALTER TABLE ONLY minutebook.document ALTER COLUMN kind_hash SET STORAGE EXTERNAL;
ALTER TABLE ONLY minutebook.document ALTER COLUMN hash SET STATISTICS 0;
ALTER TABLE ONLY minutebook.document ALTER COLUMN hash SET STORAGE EXTERNAL;
ALTER TABLE ONLY minutebook.document ALTER COLUMN body SET STATISTICS 0;
ALTER TABLE ONLY minutebook.document ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE ONLY minutebook.document FORCE ROW LEVEL SECURITY;
CREATE TABLE minutebook.entry (
    conversation bigint NOT NULL,
    "position" integer NOT NULL,
    turn integer NOT NULL,
    role smallint NOT NULL,
    tenant text DEFAULT current_setting('minutebook.tenant'::text, true) NOT NULL COLLATE pg_catalog."C",
    metadata bytea NOT NULL,
    text bytea,
    rest bytea
)
PARTITION BY LIST (tenant);
ALTER TABLE ONLY minutebook.entry ALTER COLUMN metadata SET STATISTICS 0;
ALTER TABLE ONLY minutebook.entry ALTER COLUMN metadata SET STORAGE EXTERNAL;
ALTER TABLE ONLY minutebook.entry ALTER COLUMN text SET STATISTICS 0;
ALTER TABLE ONLY minutebook.entry ALTER COLUMN text SET STORAGE EXTERNAL;
ALTER TABLE ONLY minutebook.entry ALTER COLUMN rest SET STATISTICS 0;
ALTER TABLE ONLY minutebook.entry ALTER COLUMN rest SET STORAGE EXTERNAL;
ALTER TABLE ONLY minutebook.entry FORCE ROW LEVEL SECURITY;
CREATE TABLE minutebook.entry_others (
    conversation bigint CONSTRAINT entry_conversation_not_null NOT NULL,
    "position" integer CONSTRAINT entry_position_not_null NOT NULL,
    turn integer CONSTRAINT entry_turn_not_null NOT NULL,
    role smallint CONSTRAINT entry_role_not_null NOT NULL,
    tenant text DEFAULT current_setting('minutebook.tenant'::text, true) CONSTRAINT entry_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    metadata bytea CONSTRAINT entry_metadata_not_null NOT NULL,
    text bytea,
    rest bytea
)
WITH (toast_tuple_target='4064');
ALTER TABLE ONLY minutebook.entry_others ALTER COLUMN metadata SET STATISTICS 0;
ALTER TABLE ONLY minutebook.entry_others ALTER COLUMN metadata SET STORAGE EXTERNAL;
ALTER TABLE ONLY minutebook.entry_others ALTER COLUMN text SET STATISTICS 0;
ALTER TABLE ONLY minutebook.entry_others ALTER COLUMN text SET STORAGE EXTERNAL;
ALTER TABLE ONLY minutebook.entry_others ALTER COLUMN rest SET STATISTICS 0;
ALTER TABLE ONLY minutebook.entry_others ALTER COLUMN rest SET STORAGE EXTERNAL;
ALTER TABLE ONLY minutebook.entry_others FORCE ROW LEVEL SECURITY;
CREATE SEQUENCE minutebook.fence
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE minutebook.fold (
    tenant text DEFAULT current_setting('minutebook.tenant'::text, true) NOT NULL COLLATE pg_catalog."C",
    conversation bigint NOT NULL,
    number integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    start integer NOT NULL,
    stop integer NOT NULL,
    body bytea NOT NULL,
    created_at bigint NOT NULL,
    undone_at bigint,
    sealed boolean NOT NULL,
    covered_by integer
);
ALTER TABLE ONLY minutebook.fold ALTER COLUMN id SET STATISTICS 0;
ALTER TABLE ONLY minutebook.fold ALTER COLUMN body SET STATISTICS 0;
ALTER TABLE ONLY minutebook.fold ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE ONLY minutebook.fold FORCE ROW LEVEL SECURITY;
CREATE TABLE minutebook.idempotency_key (
    conversation bigint NOT NULL,
    version bigint NOT NULL,
    tenant text DEFAULT current_setting('minutebook.tenant'::text, true) NOT NULL COLLATE pg_catalog."C",
    key bytea NOT NULL,
    digest bytea NOT NULL
);
ALTER TABLE ONLY minutebook.idempotency_key ALTER COLUMN tenant SET STORAGE PLAIN;
ALTER TABLE ONLY minutebook.idempotency_key ALTER COLUMN key SET STATISTICS 0;
ALTER TABLE ONLY minutebook.idempotency_key ALTER COLUMN key SET STORAGE PLAIN;
ALTER TABLE ONLY minutebook.idempotency_key ALTER COLUMN digest SET STATISTICS 0;
ALTER TABLE ONLY minutebook.idempotency_key ALTER COLUMN digest SET STORAGE PLAIN;
ALTER TABLE ONLY minutebook.idempotency_key FORCE ROW LEVEL SECURITY;
CREATE TABLE minutebook.lease (
    fence bigint DEFAULT nextval('minutebook.fence'::regclass) NOT NULL,
    until bigint NOT NULL,
    tenant text DEFAULT current_setting('minutebook.tenant'::text, true) NOT NULL COLLATE pg_catalog."C",
    id bytea NOT NULL,
    holder text NOT NULL COLLATE pg_catalog."C"
)
WITH (fillfactor='70');
ALTER TABLE ONLY minutebook.lease ALTER COLUMN tenant SET STORAGE PLAIN;
ALTER TABLE ONLY minutebook.lease ALTER COLUMN id SET STATISTICS 0;
ALTER TABLE ONLY minutebook.lease ALTER COLUMN id SET STORAGE PLAIN;
ALTER TABLE ONLY minutebook.lease ALTER COLUMN holder SET STATISTICS 0;
ALTER TABLE ONLY minutebook.lease ALTER COLUMN holder SET STORAGE PLAIN;
ALTER TABLE ONLY minutebook.lease FORCE ROW LEVEL SECURITY;
CREATE TABLE minutebook.payload (
    tenant text DEFAULT current_setting('minutebook.tenant'::text, true) NOT NULL COLLATE pg_catalog."C",
    hash bytea NOT NULL,
    uses bigint NOT NULL,
    body bytea NOT NULL
)
WITH (toast_tuple_target='4064');
ALTER TABLE ONLY minutebook.payload ALTER COLUMN hash SET STATISTICS 0;
ALTER TABLE ONLY minutebook.payload ALTER COLUMN hash SET STORAGE EXTERNAL;
ALTER TABLE ONLY minutebook.payload ALTER COLUMN body SET STATISTICS 0;
ALTER TABLE ONLY minutebook.payload ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE ONLY minutebook.payload FORCE ROW LEVEL SECURITY;
CREATE TABLE minutebook.pin (
    conversation bigint NOT NULL,
    "position" integer NOT NULL,
    tenant text DEFAULT current_setting('minutebook.tenant'::text, true) NOT NULL COLLATE pg_catalog."C"
);
ALTER TABLE ONLY minutebook.pin ALTER COLUMN tenant SET STORAGE PLAIN;
ALTER TABLE ONLY minutebook.pin FORCE ROW LEVEL SECURITY;
CREATE TABLE minutebook.removed (
    number bigint NOT NULL,
    relation oid NOT NULL
);
ALTER TABLE minutebook.removed ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME minutebook.removed_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE minutebook.setting (
    name text NOT NULL,
    value text NOT NULL
);
ALTER TABLE ONLY minutebook.setting ALTER COLUMN name SET STATISTICS 0;
ALTER TABLE ONLY minutebook.setting ALTER COLUMN value SET STATISTICS 0;
CREATE TABLE minutebook.tombstone (
    erased_at bigint NOT NULL,
    tenant text DEFAULT current_setting('minutebook.tenant'::text, true) NOT NULL COLLATE pg_catalog."C",
    id bytea NOT NULL
);
ALTER TABLE ONLY minutebook.tombstone ALTER COLUMN tenant SET STORAGE PLAIN;
ALTER TABLE ONLY minutebook.tombstone ALTER COLUMN id SET STATISTICS 0;
ALTER TABLE ONLY minutebook.tombstone ALTER COLUMN id SET STORAGE PLAIN;
ALTER TABLE ONLY minutebook.tombstone FORCE ROW LEVEL SECURITY;
CREATE TABLE minutebook.word (
    key bigint NOT NULL,
    part smallint NOT NULL,
    size smallint NOT NULL,
    tenant text DEFAULT current_setting('minutebook.tenant'::text, true) NOT NULL COLLATE pg_catalog."C",
    words tsvector NOT NULL
);
ALTER TABLE ONLY minutebook.word ALTER COLUMN words SET STATISTICS 0;
ALTER TABLE ONLY minutebook.entry ATTACH PARTITION minutebook.entry_others DEFAULT;
INSERT INTO minutebook.blocked_recipient VALUES (1767323045000000, 'default', '\x38f29d1585d94f4b262f5644ad842068');
INSERT INTO minutebook.conversation OVERRIDING SYSTEM VALUE VALUES (1, 'default', 'order-1', 'alice', 'idle', 1, 15, 3, 0, 0, NULL, NULL, '{"team": "blue"}', 1767323045000000, 1767323045000000, 1767323045000000, NULL, NULL, NULL, NULL, 2, 0, 7);
INSERT INTO minutebook.conversation OVERRIDING SYSTEM VALUE VALUES (2, 'default', 'order-1-again', 'alice', 'idle', 1, 10, 2, 0, 0, NULL, NULL, '{"team": "blue"}', 1767323045000000, 1767323045000000, 1767323045000000, 1, 'order-1', 10, '[[1, 10]]', 0, 0, 0);
INSERT INTO minutebook.conversation OVERRIDING SYSTEM VALUE VALUES (3, 'default', 'large', 'large', 'idle', 1, 3, 3, 0, 0, NULL, NULL, NULL, 1767323045000000, 1767323045000000, 1767323045000000, NULL, NULL, NULL, NULL, 0, 0, 0);
INSERT INTO minutebook.conversation OVERRIDING SYSTEM VALUE VALUES (4, 'default', 'rewound', 'rewound', 'idle', 2, 3, 3, 0, 0, NULL, NULL, NULL, 1767323045000000, 1767323045000000, 1767323045000000, NULL, NULL, NULL, NULL, 0, 0, 0);
INSERT INTO minutebook.conversation OVERRIDING SYSTEM VALUE VALUES (6, 'other', 'order-1', 'order-1', 'idle', 1, 1, 1, 0, 0, NULL, NULL, NULL, 1767323045000000, 1767323045000000, 1767323045000000, NULL, NULL, NULL, NULL, 0, 0, 0);
INSERT INTO minutebook.document VALUES (1, 1, 1767323045000000, NULL, 'default', 'note', 'n', '\xedb465624291e4053c6c5ea4b7eb320d', '\x7ace5d313b7e1bdd02b7ca9b5a333994', '\x007b2274657874223a2261206e6f7465227d');
INSERT INTO minutebook.document VALUES (1, 2, 1767323045000000, NULL, 'default', 'request', '7-order-1', '\x1f58b9145b24d108d7ac38887338b3ea', '\x2bddce142584f325a71323a53fc7484b', '\x0343645273a2b322f5b20fc8f1d85397496c2c81146669a08396c82c0d6a01');
INSERT INTO minutebook.entry_others VALUES (1, 0, 1, 1, 'default', '\x000000000000000000000000000000070006475ef6574f35005b6e756c6c2c226d225d', '\x007175657374696f6e2030', NULL);
INSERT INTO minutebook.entry_others VALUES (1, 1, 1, 2, 'default', '\x000000000000000000000000000000070006475ef6574f3501015b6e756c6c2c226d225d', NULL, '\x007b22726f6c65223a22617373697374616e74222c22636f6e74656e74223a6e756c6c2c22746f6f6c5f63616c6c73223a5b7b226964223a2263616c6c5f305f30222c2274797065223a2266756e6374696f6e222c2266756e6374696f6e223a7b226e616d65223a226c6f6f6b222c22617267756d656e7473223a227b7d227d7d2c7b226964223a2263616c6c5f305f31222c2274797065223a2266756e6374696f6e222c2266756e6374696f6e223a7b226e616d65223a226c6f6f6b222c22617267756d656e7473223a227b7d227d7d5d7d');
INSERT INTO minutebook.entry_others VALUES (1, 2, 1, 3, 'default', '\x000000000000000000000000000000070006475ef6574f3501025b6e756c6c2c226d225d', '\x00666f756e642063616c6c5f305f30', '\x007b22726f6c65223a22746f6f6c222c22746f6f6c5f63616c6c5f6964223a2263616c6c5f305f30222c22636f6e74656e74223a307d');
INSERT INTO minutebook.entry_others VALUES (1, 3, 1, 3, 'default', '\x000000000000000000000000000000070006475ef6574f3501035b6e756c6c2c226d225d', '\x00666f756e642063616c6c5f305f31', '\x007b22726f6c65223a22746f6f6c222c22746f6f6c5f63616c6c5f6964223a2263616c6c5f305f31222c22636f6e74656e74223a307d');
INSERT INTO minutebook.entry_others VALUES (1, 4, 1, 2, 'default', '\x000000000000000000000000000000070006475ef6574f3501045b6e756c6c2c226d225d', '\x00616e737765722030', NULL);
INSERT INTO minutebook.entry_others VALUES (1, 5, 2, 1, 'default', '\x000000000000000000000000000000070006475ef6574f35005b6e756c6c2c226d225d', '\x007175657374696f6e2031', NULL);
INSERT INTO minutebook.entry_others VALUES (1, 6, 2, 2, 'default', '\x000000000000000000000000000000070006475ef6574f3501015b6e756c6c2c226d225d', NULL, '\x007b22726f6c65223a22617373697374616e74222c22636f6e74656e74223a6e756c6c2c22746f6f6c5f63616c6c73223a5b7b226964223a2263616c6c5f315f30222c2274797065223a2266756e6374696f6e222c2266756e6374696f6e223a7b226e616d65223a226c6f6f6b222c22617267756d656e7473223a227b7d227d7d2c7b226964223a2263616c6c5f315f31222c2274797065223a2266756e6374696f6e222c2266756e6374696f6e223a7b226e616d65223a226c6f6f6b222c22617267756d656e7473223a227b7d227d7d5d7d');
INSERT INTO minutebook.entry_others VALUES (1, 7, 2, 3, 'default', '\x000000000000000000000000000000070006475ef6574f3501025b6e756c6c2c226d225d', '\x00666f756e642063616c6c5f315f30', '\x007b22726f6c65223a22746f6f6c222c22746f6f6c5f63616c6c5f6964223a2263616c6c5f315f30222c22636f6e74656e74223a307d');
INSERT INTO minutebook.entry_others VALUES (1, 8, 2, 3, 'default', '\x000000000000000000000000000000070006475ef6574f3501035b6e756c6c2c226d225d', '\x00666f756e642063616c6c5f315f31', '\x007b22726f6c65223a22746f6f6c222c22746f6f6c5f63616c6c5f6964223a2263616c6c5f315f31222c22636f6e74656e74223a307d');
INSERT INTO minutebook.entry_others VALUES (1, 9, 2, 2, 'default', '\x000000000000000000000000000000070006475ef6574f3501045b6e756c6c2c226d225d', '\x00616e737765722031', NULL);
INSERT INTO minutebook.entry_others VALUES (1, 10, 3, 1, 'default', '\x000000000000000000000000000000070006475ef6574f35005b6e756c6c2c226d225d', '\x007175657374696f6e2032', NULL);
INSERT INTO minutebook.entry_others VALUES (1, 11, 3, 2, 'default', '\x000000000000000000000000000000070006475ef6574f3501015b6e756c6c2c226d225d', NULL, '\x007b22726f6c65223a22617373697374616e74222c22636f6e74656e74223a6e756c6c2c22746f6f6c5f63616c6c73223a5b7b226964223a2263616c6c5f325f30222c2274797065223a2266756e6374696f6e222c2266756e6374696f6e223a7b226e616d65223a226c6f6f6b222c22617267756d656e7473223a227b7d227d7d2c7b226964223a2263616c6c5f325f31222c2274797065223a2266756e6374696f6e222c2266756e6374696f6e223a7b226e616d65223a226c6f6f6b222c22617267756d656e7473223a227b7d227d7d5d7d');
INSERT INTO minutebook.entry_others VALUES (1, 12, 3, 3, 'default', '\x000000000000000000000000000000070006475ef6574f3501025b6e756c6c2c226d225d', '\x00666f756e642063616c6c5f325f30', '\x007b22726f6c65223a22746f6f6c222c22746f6f6c5f63616c6c5f6964223a2263616c6c5f325f30222c22636f6e74656e74223a307d');
INSERT INTO minutebook.entry_others VALUES (1, 13, 3, 3, 'default', '\x000000000000000000000000000000070006475ef6574f3501035b6e756c6c2c226d225d', '\x00666f756e642063616c6c5f325f31', '\x007b22726f6c65223a22746f6f6c222c22746f6f6c5f63616c6c5f6964223a2263616c6c5f325f31222c22636f6e74656e74223a307d');
INSERT INTO minutebook.entry_others VALUES (1, 14, 3, 2, 'default', '\x000000000000000000000000000000070006475ef6574f3501045b6e756c6c2c226d225d', '\x00616e737765722032', NULL);
INSERT INTO minutebook.entry_others VALUES (3, 0, 1, 1, 'default', '\x000000000000000000000000000000070006475ef6574f35005b6e756c6c2c226d225d', '\x02834c64d1b8b7fd1b9e9651cd6d99aa3eeef86504cc8066cfa76b89d7f70a7188', NULL);
INSERT INTO minutebook.entry_others VALUES (3, 1, 2, 1, 'default', '\x000000000000000000000000000000070006475ef6574f3501015b6e756c6c2c226d225d', '\x02834c64d1b8b7fd1b9e9651cd6d99aa3eeef86504cc8066cfa76b89d7f70a7188', NULL);
INSERT INTO minutebook.entry_others VALUES (3, 2, 3, 1, 'default', '\x000000000000000000000000000000070006475ef6574f3501025b6e756c6c2c226d225d', '\x00e69db1e4baace381aee5a4a9e6b097', NULL);
INSERT INTO minutebook.entry_others VALUES (4, 0, 1, 1, 'default', '\x000000000000000000000000000000070006475ef6574f35005b6e756c6c2c226d225d', '\x006f6e65', NULL);
INSERT INTO minutebook.entry_others VALUES (4, 1, 2, 1, 'default', '\x000000000000000000000000000000070006475ef6574f3501015b6e756c6c2c226d225d', '\x0074776f', NULL);
INSERT INTO minutebook.entry_others VALUES (4, 2, 3, 1, 'default', '\x000000000000000000000000000000070006475ef6574f3501025b6e756c6c2c226d225d', '\x007468726565', NULL);
INSERT INTO minutebook.entry_others VALUES (6, 0, 1, 1, 'other', '\x000000000000000000000000000000070006475ef6574f35005b6e756c6c2c226d225d', '\x006f6620616e6f746865722074656e616e74', NULL);
INSERT INTO minutebook.fold VALUES ('default', 1, 0, 'summary', 0, 5, '\x5b22666f7220612074657374222c7b22726f6c65223a2273797374656d222c22636f6e74656e74223a225b73756d6d6172793a20656e7472696573203020746f20355d227d5d', 1767323045000000, NULL, false, NULL);
INSERT INTO minutebook.fold VALUES ('default', 2, 0, 'summary', 0, 5, '\x5b22666f7220612074657374222c7b22726f6c65223a2273797374656d222c22636f6e74656e74223a225b73756d6d6172793a20656e7472696573203020746f20355d227d5d', 1767323045000000, NULL, false, NULL);
INSERT INTO minutebook.fold VALUES ('default', 4, 0, 'rewind-2953cff97c5a49c9a7ea610d7f912d8a', 1, 3, '\x5b22726577696e64225d', 1767323045000000, NULL, false, NULL);
INSERT INTO minutebook.idempotency_key VALUES (1, 1, 'default', '\xa7937b64b8caa58f03721bb6bacf5c78', '\x500121dfbeb89074ac7652b0c2ea7aaa');
INSERT INTO minutebook.payload VALUES ('default', '\x834c64d1b8b7fd1b9e9651cd6d99aa3eeef86504cc8066cfa76b89d7f70a7188', 2, '\x01edc4210d00000800b02a5443300c8afe8218985f7c72bb626cdbb66ddbb66ddbb66ddbb66ddbb66ddb7efd00');
INSERT INTO minutebook.pin VALUES (1, 5, 'default');
INSERT INTO minutebook.pin VALUES (2, 5, 'default');
INSERT INTO minutebook.removed OVERRIDING SYSTEM VALUE VALUES (1, 16551);
INSERT INTO minutebook.removed OVERRIDING SYSTEM VALUE VALUES (2, 16386);
INSERT INTO minutebook.setting VALUES ('migration 0001_first', '596fdb4e3680e7bda49e768eb7c6cba79ee103bf75be22272f6167c5b4001579');
INSERT INTO minutebook.setting VALUES ('role', 'minutebook_app');
INSERT INTO minutebook.tombstone VALUES (1767323045000000, 'default', '\x614f32f2506677768687798d4f5fc611');
INSERT INTO minutebook.word VALUES (4294967296, 0, 15, 'default', '''g6uo0'' ''g6uo1'' ''g6uo2'' ''g6uoanswer'' ''g6uocall'' ''g6uofound'' ''g6uolook'' ''g6uoquestion'' ''g6uoassistant'' ''g6uotool'' ''g6uouser'' ''g6uofpmansl7by''');
INSERT INTO minutebook.word VALUES (6442450944, 0, 1, 'default', '''g6uo0'' ''g6uo5'' ''g6uoentries'' ''g6uosummary'' ''g6uoto'' ''g6uosystem'' ''g6uofpmansl7by''');
INSERT INTO minutebook.word VALUES (10737418240, 0, 1, 'default', '''g6uo0'' ''g6uo5'' ''g6uoentries'' ''g6uosummary'' ''g6uoto'' ''g6uosystem'' ''g6uofpmansl7by''');
INSERT INTO minutebook.word VALUES (12884901888, 0, 3, 'default', '''g6uolarge'' ''g6uoの天'' ''g6uo京の'' ''g6uo天気'' ''g6uo東京'' ''g6uo気'' ''g6uouser'' ''g6uo2noec2ufxa''');
INSERT INTO minutebook.word VALUES (17179869184, 0, 3, 'default', '''g6uoone'' ''g6uothree'' ''g6uotwo'' ''g6uouser'' ''g6uokjxpjypc4y''');
INSERT INTO minutebook.word VALUES (25769803776, 0, 1, 'other', '''3euyanother'' ''3euyof'' ''3euytenant'' ''3euyuser'' ''3euybox6eikw2j''');
SELECT pg_catalog.setval('minutebook.conversation_number_seq', 6, true);
SELECT pg_catalog.setval('minutebook.fence', 1, false);
SELECT pg_catalog.setval('minutebook.removed_number_seq', 2, true);
ALTER TABLE ONLY minutebook.blocked_recipient
    ADD CONSTRAINT blocked_recipient_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY minutebook.conversation
    ADD CONSTRAINT conversation_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY minutebook.document
    ADD CONSTRAINT document_pkey PRIMARY KEY (tenant, hash);
ALTER TABLE ONLY minutebook.entry
    ADD CONSTRAINT entry_pkey PRIMARY KEY (tenant, conversation, "position");
ALTER TABLE ONLY minutebook.entry_others
    ADD CONSTRAINT entry_others_pkey PRIMARY KEY (tenant, conversation, "position");
ALTER TABLE ONLY minutebook.fold
    ADD CONSTRAINT fold_pkey PRIMARY KEY (tenant, conversation, number);
ALTER TABLE ONLY minutebook.idempotency_key
    ADD CONSTRAINT idempotency_key_pkey PRIMARY KEY (tenant, conversation, key);
ALTER TABLE ONLY minutebook.lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY minutebook.payload
    ADD CONSTRAINT payload_pkey PRIMARY KEY (tenant, hash);
ALTER TABLE ONLY minutebook.pin
    ADD CONSTRAINT pin_pkey PRIMARY KEY (tenant, conversation, "position");
ALTER TABLE ONLY minutebook.removed
    ADD CONSTRAINT removed_pkey PRIMARY KEY (number);
ALTER TABLE ONLY minutebook.setting
    ADD CONSTRAINT setting_pkey PRIMARY KEY (name);
ALTER TABLE ONLY minutebook.tombstone
    ADD CONSTRAINT tombstone_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY minutebook.word
    ADD CONSTRAINT word_pkey PRIMARY KEY (tenant, key, part);
CREATE UNIQUE INDEX conversation_by_number ON minutebook.conversation USING btree (tenant, number);
CREATE INDEX conversation_by_origin ON minutebook.conversation USING btree (tenant, origin) WHERE (origin IS NOT NULL);
CREATE INDEX conversation_by_recipient ON minutebook.conversation USING btree (tenant, recipient, created_at DESC, id) WHERE (recipient <> id);
CREATE INDEX conversation_by_status ON minutebook.conversation USING btree (tenant, status, created_at DESC, id);
CREATE INDEX document_by_end ON minutebook.document USING btree (tenant, kind_hash, expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX document_by_number ON minutebook.document USING btree (tenant, conversation, kind_hash, number);
CREATE INDEX fold_active ON minutebook.fold USING btree (tenant, conversation, stop) WHERE ((undone_at IS NULL) AND (covered_by IS NULL));
CREATE UNIQUE INDEX fold_by_id ON minutebook.fold USING btree (tenant, conversation, id);
CREATE INDEX request_by_age ON minutebook.document USING btree (tenant, created_at) WHERE (kind = 'request'::text);
CREATE INDEX word_by_word ON minutebook.word USING gin (words) WITH (gin_pending_list_limit='64');
ALTER INDEX minutebook.entry_pkey ATTACH PARTITION minutebook.entry_others_pkey;
ALTER TABLE minutebook.blocked_recipient ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.conversation ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.document ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.entry ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.entry_others ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.fold ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.idempotency_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.lease ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON minutebook.blocked_recipient TO postgres USING ((current_setting('minutebook.all_tenants'::text, true) = 'on'::text));
CREATE POLICY owner ON minutebook.conversation TO postgres USING ((current_setting('minutebook.all_tenants'::text, true) = 'on'::text));
CREATE POLICY owner ON minutebook.document TO postgres USING ((current_setting('minutebook.all_tenants'::text, true) = 'on'::text));
CREATE POLICY owner ON minutebook.entry TO postgres USING ((current_setting('minutebook.all_tenants'::text, true) = 'on'::text));
CREATE POLICY owner ON minutebook.entry_others TO postgres USING ((current_setting('minutebook.all_tenants'::text, true) = 'on'::text));
CREATE POLICY owner ON minutebook.fold TO postgres USING ((current_setting('minutebook.all_tenants'::text, true) = 'on'::text));
CREATE POLICY owner ON minutebook.idempotency_key TO postgres USING ((current_setting('minutebook.all_tenants'::text, true) = 'on'::text));
CREATE POLICY owner ON minutebook.lease TO postgres USING ((current_setting('minutebook.all_tenants'::text, true) = 'on'::text));
CREATE POLICY owner ON minutebook.payload TO postgres USING ((current_setting('minutebook.all_tenants'::text, true) = 'on'::text));
CREATE POLICY owner ON minutebook.pin TO postgres USING ((current_setting('minutebook.all_tenants'::text, true) = 'on'::text));
CREATE POLICY owner ON minutebook.tombstone TO postgres USING ((current_setting('minutebook.all_tenants'::text, true) = 'on'::text));
CREATE POLICY owner ON minutebook.word TO postgres USING ((current_setting('minutebook.all_tenants'::text, true) = 'on'::text));
ALTER TABLE minutebook.payload ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.pin ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON minutebook.blocked_recipient USING ((tenant = current_setting('minutebook.tenant'::text, true)));
CREATE POLICY tenant ON minutebook.conversation USING ((tenant = current_setting('minutebook.tenant'::text, true)));
CREATE POLICY tenant ON minutebook.document USING ((tenant = current_setting('minutebook.tenant'::text, true)));
CREATE POLICY tenant ON minutebook.entry USING ((tenant = current_setting('minutebook.tenant'::text, true)));
CREATE POLICY tenant ON minutebook.entry_others USING ((tenant = current_setting('minutebook.tenant'::text, true)));
CREATE POLICY tenant ON minutebook.fold USING ((tenant = current_setting('minutebook.tenant'::text, true)));
CREATE POLICY tenant ON minutebook.idempotency_key USING ((tenant = current_setting('minutebook.tenant'::text, true)));
CREATE POLICY tenant ON minutebook.lease USING ((tenant = current_setting('minutebook.tenant'::text, true)));
CREATE POLICY tenant ON minutebook.payload USING ((tenant = current_setting('minutebook.tenant'::text, true)));
CREATE POLICY tenant ON minutebook.pin USING ((tenant = current_setting('minutebook.tenant'::text, true)));
CREATE POLICY tenant ON minutebook.tombstone USING ((tenant = current_setting('minutebook.tenant'::text, true)));
CREATE POLICY tenant ON minutebook.word USING ((tenant = current_setting('minutebook.tenant'::text, true)));
ALTER TABLE minutebook.tombstone ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.word ENABLE ROW LEVEL SECURITY;
GRANT USAGE ON SCHEMA minutebook TO minutebook_app;
REVOKE ALL ON FUNCTION minutebook.add_partition(tenant_id text) FROM PUBLIC;
REVOKE ALL ON FUNCTION minutebook.mark_removed(relations oid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION minutebook.mark_removed(relations oid[]) TO minutebook_app;
REVOKE ALL ON FUNCTION minutebook.search(query text, start bigint, stop bigint, max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION minutebook.search(query text, start bigint, stop bigint, max_rows integer) TO minutebook_app;
GRANT SELECT,INSERT,DELETE ON TABLE minutebook.blocked_recipient TO minutebook_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE minutebook.conversation TO minutebook_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE minutebook.document TO minutebook_app;
GRANT SELECT,INSERT,DELETE ON TABLE minutebook.entry TO minutebook_app;
GRANT USAGE ON SEQUENCE minutebook.fence TO minutebook_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE minutebook.fold TO minutebook_app;
GRANT SELECT,INSERT,DELETE ON TABLE minutebook.idempotency_key TO minutebook_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE minutebook.lease TO minutebook_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE minutebook.payload TO minutebook_app;
GRANT SELECT,INSERT,DELETE ON TABLE minutebook.pin TO minutebook_app;
GRANT SELECT,INSERT,UPDATE ON TABLE minutebook.setting TO minutebook_app;
GRANT SELECT,INSERT ON TABLE minutebook.tombstone TO minutebook_app;
GRANT SELECT,INSERT,DELETE ON TABLE minutebook.word TO minutebook_app;
