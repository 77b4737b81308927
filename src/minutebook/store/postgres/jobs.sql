-- Background jobs, one for each conversation that waits. The tables are procrastinate's, in a schema of their own that
-- the role of the store cannot look into: it can only ask, for the tenant of its transaction.

CREATE FUNCTION minutebook_jobs.put(whose text, conversation text, tries integer, not_before timestamptz)
RETURNS boolean LANGUAGE plpgsql SET search_path = minutebook_jobs, pg_catalog
AS $$
DECLARE
    name text := md5(jsonb_build_array(whose, conversation)::text);
    args jsonb := jsonb_build_object('tenant', whose, 'conversation', conversation, 'tries', tries);
BEGIN
    PERFORM procrastinate_defer_jobs_v1(ARRAY[
        ROW('minutebook', 'minutebook.conversation', 0, name, name, args, not_before)
    ]::procrastinate_job_to_defer_v1[]);
    RETURN true;
EXCEPTION WHEN unique_violation THEN
    RETURN false;                                   -- one waits already, and will see whatever this one would have
END
$$;

CREATE FUNCTION minutebook_jobs.ask(conversation text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = minutebook_jobs, pg_catalog
AS $$
    SELECT put(current_setting('minutebook.tenant'), conversation, 0, NULL)
$$;

CREATE FUNCTION minutebook_jobs.forget(conversations text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = minutebook_jobs, pg_catalog
AS $$
    DELETE FROM procrastinate_jobs
    WHERE queue_name = 'minutebook' AND status <> 'doing' AND args ->> 'tenant' = current_setting('minutebook.tenant')
        AND args ->> 'conversation' = ANY(conversations)
$$;

-- A worker that has given no sign of life for so long has lost its jobs. They are done again under new numbers, so that
-- if it lives after all, what it says about the old ones changes nothing.
CREATE FUNCTION minutebook_jobs.reclaim(lease_seconds double precision) RETURNS integer
LANGUAGE plpgsql SET search_path = minutebook_jobs, pg_catalog
AS $$
DECLARE
    lost jsonb;
    count integer := 0;
BEGIN
    FOR lost IN
        DELETE FROM procrastinate_jobs
        WHERE queue_name = 'minutebook' AND status = 'doing' AND NOT EXISTS (
            SELECT FROM procrastinate_workers
            WHERE id = worker_id AND last_heartbeat >= now() - make_interval(secs => lease_seconds)
        )
        RETURNING args
    LOOP
        PERFORM put(lost ->> 'tenant', lost ->> 'conversation', (lost ->> 'tries')::integer, NULL);
        count := count + 1;
    END LOOP;
    RETURN count;
END
$$;

-- Whoever changes a row of the queue runs procrastinate's triggers, which must find its tables.
DO $$
DECLARE
    one regprocedure;
BEGIN
    FOR one IN SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = 'minutebook_jobs'::regnamespace LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = minutebook_jobs, pg_catalog', one);
    END LOOP;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA minutebook_jobs FROM PUBLIC;
GRANT USAGE ON SCHEMA minutebook_jobs TO minutebook_app;
GRANT EXECUTE ON FUNCTION minutebook_jobs.ask, minutebook_jobs.forget TO minutebook_app;
