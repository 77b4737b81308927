-- The queue of background jobs, at most one waiting job per conversation. The tables are procrastinate's. The role of the
-- store cannot read their schema: it can only add and delete jobs of its transaction's tenant.

-- The name of a conversation's jobs. `cancel` finds them by it, waiting or not.
CREATE FUNCTION minutebook_jobs.name_of(tenant text, conversation text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT md5(jsonb_build_array(tenant, conversation)::text) $$;
CREATE INDEX job_by_name ON minutebook_jobs.procrastinate_jobs (queueing_lock);

CREATE FUNCTION minutebook_jobs.enqueue(tenant text, conversation text, tries integer, not_before timestamptz)
RETURNS boolean LANGUAGE plpgsql SET search_path = minutebook_jobs, pg_catalog
AS $$
DECLARE
    name text := name_of(tenant, conversation);
    args jsonb := jsonb_build_object('tenant', tenant, 'conversation', conversation, 'tries', tries);
BEGIN
    PERFORM procrastinate_defer_jobs_v1(ARRAY[
        ROW('minutebook', 'minutebook.conversation', 0, name, name, args, not_before)
    ]::procrastinate_job_to_defer_v1[]);
    RETURN true;
EXCEPTION WHEN unique_violation THEN
    RETURN false;                                   -- a job is already waiting and will see the new state
END
$$;

-- Enqueues a job for a conversation of the transaction's tenant.
CREATE FUNCTION minutebook_jobs.enqueue_own(conversation text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = minutebook_jobs, pg_catalog
AS $$
    SELECT enqueue(current_setting('minutebook.tenant'), conversation, 0, NULL)
$$;

CREATE FUNCTION minutebook_jobs.cancel(conversations text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = minutebook_jobs, pg_catalog
AS $$
    DELETE FROM procrastinate_jobs
    WHERE status <> 'doing' AND queueing_lock = ANY(ARRAY(  -- not by queue_name, whose index has all jobs
        SELECT name_of(current_setting('minutebook.tenant'), conversation) FROM unnest(conversations) AS conversation
    ))
$$;

-- The number of jobs of all tenants that wait for a worker, for metrics.
CREATE FUNCTION minutebook_jobs.waiting() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = minutebook_jobs, pg_catalog
AS $$
    SELECT count(*) FROM procrastinate_jobs WHERE queue_name = 'minutebook' AND status = 'todo'
$$;

-- Queues the jobs of workers again that sent no heartbeat for `lease_seconds`. They get new job numbers, so that a worker
-- that is still alive cannot finish the new ones.
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
        PERFORM enqueue(lost ->> 'tenant', lost ->> 'conversation', (lost ->> 'tries')::integer, NULL);
        count := count + 1;
    END LOOP;
    RETURN count;
END
$$;

-- Changing a row of the queue runs procrastinate's triggers, which need its schema in the search path.
DO $$
DECLARE
    function regprocedure;
BEGIN
    FOR function IN SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = 'minutebook_jobs'::regnamespace LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = minutebook_jobs, pg_catalog', function);
    END LOOP;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA minutebook_jobs FROM PUBLIC;
GRANT USAGE ON SCHEMA minutebook_jobs TO minutebook_app;
GRANT EXECUTE ON FUNCTION minutebook_jobs.enqueue_own, minutebook_jobs.cancel, minutebook_jobs.waiting TO minutebook_app;
