"""Behaviour that only the PostgreSQL store has: row-level security by tenant, and no state in sessions."""

import asyncio
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql

from minutebook.errors import InvalidSetting, StoreDamaged, StoreFull, StoreReadOnly, StoreRejected, StoreUnavailable
from minutebook.record import exchanges
from minutebook.record.message import text_of
from minutebook.store import codec
from minutebook.store.backend import SearchQuery
from minutebook.store.encryption import encrypted
from minutebook.store.postgres import writer as postgres_writer
from minutebook.store.postgres.connection import TenantConnection
from minutebook.store.postgres.search import tsquery
from minutebook.store.postgres.store import PostgresStore
from minutebook.store.search import WORDS, index_query, parse_query, tenant_prefix
from minutebook.store.types import MAX_NAME_BYTES, NewDocument
from minutebook.store.url import open_store
from minutebook.testing import coding_session
from minutebook.testing.contract.samples import entries_of, expect_error, summary_fold, text_entries, texts, turn, turns
from tests.servers import GIVEN, Postgres, as_root, require_postgres, shared
from tests.store.deleted_data import GONE, STAYS, gone_in, plant, remove

TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'minutebook'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')"


@pytest.fixture
def url():
    require_postgres()
    return shared.empty()


@pytest.fixture
def server():
    """A separate server, for tests that would disturb the others."""
    require_postgres()
    server = Postgres.make()
    yield server
    server.remove()


def fill_every_table(url):
    """Store conversations with every kind of row."""

    async def scenario():
        async with open_store(url) as store:
            await store.append(
                "a", [*turns(3), *text_entries("large " * 5_000)], recipient="alice", idempotency_key="k"
            )
            await store.add_fold("a", summary_fold("f", 0, 5))
            await store.pin("a", 1)
            await store.put_document("a", NewDocument("reply", "r", {"x": 1}))
            await store.acquire_lease("a", "w", seconds=60)
            await store.append("b", text_entries("gone"))
            await store.erase(conversation="b")
            assert (await store.search("question")).items

    asyncio.run(scenario())


def count(db, statement, *values):
    return db.execute(statement, values).fetchone()[0]


@pytest.mark.parametrize("tenant", [None, "", "another"])
def test_without_its_tenant_the_role_sees_no_row_of_any_table(url, tenant):
    fill_every_table(url)

    with psycopg.connect(as_root(url), autocommit=True) as db:
        tables = [name for (name,) in db.execute(TABLES)]
        full = [name for name in tables if count(db, f"SELECT count(*) FROM minutebook.{name}")]
        assert {
            "conversation",
            "entry",
            "payload",
            "fold",
            "pin",
            "idempotency_key",
            "tombstone",
            "word",
            "document",
            "lease",
        } <= set(full)
        for name in set(tables) - {"setting"}:  # the settings of the database are not those of a tenant
            with db.transaction(force_rollback=True):
                db.execute("SET LOCAL ROLE minutebook_app")
                if tenant is not None:
                    db.execute("SELECT set_config('minutebook.tenant', %s, true)", (tenant,))
                try:
                    assert count(db, f"SELECT count(*) FROM minutebook.{name}") == 0, name
                except psycopg.errors.InsufficientPrivilege:
                    assert name == "removed" or name.startswith("entry_")


def test_every_table_with_a_tenant_forces_its_policy_on_its_owner_too(url):
    fill_every_table(url)

    with psycopg.connect(as_root(url)) as db:
        tables = db.execute(
            "SELECT relname, relrowsecurity AND relforcerowsecurity, relowner = 'minutebook_app'::regrole,"
            " EXISTS (SELECT FROM pg_attribute WHERE attrelid = pg_class.oid AND attname = 'tenant')"
            " FROM pg_class WHERE relnamespace = 'minutebook'::regnamespace AND relkind IN ('r', 'p')"
        ).fetchall()
    assert len(tables) == 14
    assert [name for name, forced, _, tenant in tables if tenant and not forced] == [
        "word"
    ]  # its owner's function searches
    assert sorted(name for name, _, _, tenant in tables if not tenant) == ["removed", "setting"]
    assert not any(owned for _, _, owned, _ in tables)


def test_the_database_rejects_a_write_for_another_tenant(url):
    fill_every_table(url)

    with psycopg.connect(as_root(url), autocommit=True) as db, db.transaction(force_rollback=True):
        db.execute("SET LOCAL ROLE minutebook_app")
        db.execute("SELECT set_config('minutebook.tenant', 'another', true)")
        assert db.execute("DELETE FROM minutebook.conversation").rowcount == 0
        assert db.execute("UPDATE minutebook.conversation SET length = 0").rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            db.execute("INSERT INTO minutebook.pin (tenant, conversation, position) VALUES ('default', 1, 1)")


def test_many_tenants_on_few_connections_see_only_their_own_data(url):
    async def scenario():
        async with PostgresStore(url, connections=2) as store:
            handles = [store.for_tenant(f"tenant {number}") for number in range(40)]
            await asyncio.gather(*(handle.append("a", text_entries(handle.tenant)) for handle in handles))
            conversations = await asyncio.gather(*(handle.load("a") for handle in handles))
            pages = await asyncio.gather(*(handle.search("tenant") for handle in handles))
            expected = [[handle.tenant] for handle in handles]
            assert [texts(loaded.entries) for loaded in conversations] == expected
            assert [[hit.entry.content for hit in page.items] for page in pages] == expected

    asyncio.run(scenario())


def test_no_state_of_a_transaction_stays_in_its_session(url):
    """Required for pgbouncer in transaction mode."""

    async def scenario():
        async with PostgresStore(url, connections=1) as store:
            await store.append("a", turns(1))
            await store.load("a")

            async def session_state(db):
                state = await db.execute(
                    "SELECT current_user = session_user, current_setting('minutebook.tenant', true),"
                    " current_setting('lock_timeout'), (SELECT count(*) FROM pg_prepared_statements),"
                    " (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')"
                )
                return await state.fetchone()

            assert await store._engine.call(session_state) == (True, "", "0", 0, 0)

    asyncio.run(scenario())


def use_store_as_owner(url, *, grant):
    """Create the tables as a role that may only create roles, and use every part of the store."""
    name = f"owner_{threading.get_native_id()}"
    owner = sql.Identifier(name)
    with psycopg.connect(as_root(url), autocommit=True) as db:
        base = db.info.dbname
        db.execute("DROP SCHEMA IF EXISTS minutebook CASCADE")
        db.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEROLE PASSWORD 'secret'").format(owner))
        if grant:
            db.execute(sql.SQL("GRANT minutebook_app TO {}").format(owner))
        db.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(sql.Identifier(base), owner))
        mine = f"postgresql://{name}:secret@{db.info.host}:{db.info.port}/{base}"
    try:
        fill_every_table(mine)

        async def scenario():
            async with open_store(mine) as store:
                assert [hit.conversation for hit in (await store.search("question 1")).items] == ["a"]
                assert (await store.for_tenant("another").search("question")).items == ()
                await store.erase(conversation="a")
                await store.vacuum()
                assert (await store.list()).items == ()

        asyncio.run(scenario())
        with psycopg.connect(mine) as db:
            assert count(db, "SELECT count(*) FROM minutebook.tombstone") == 0
    finally:
        with psycopg.connect(as_root(url), autocommit=True) as db:
            db.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(owner))
            if grant:
                db.execute(sql.SQL("DROP ROLE {}").format(owner))


def test_an_owner_without_superuser_rights_can_do_everything(url):
    fill_every_table(url)  # creates the store's role, unless another test has created it

    use_store_as_owner(url, grant=True)


def test_an_owner_without_superuser_rights_can_be_the_first_on_a_server(server):
    use_store_as_owner(server.url(), grant=False)


def test_two_owners_on_one_server_start_with_roles_of_their_own(server):
    with psycopg.connect(server.url(), autocommit=True) as db:
        for name in ("first", "second"):
            db.execute(f"CREATE ROLE {name} LOGIN CREATEROLE")
            db.execute(f"CREATE DATABASE {name} OWNER {name}")

    fill_every_table(server.url("first", "first"))
    url = server.url("second", "second")
    with pytest.raises(StoreRejected, match=r"uses the role minutebook_app, choose another name with \?role=NAME"):
        fill_every_table(url)
    fill_every_table(f"{url}?role=select&connections=2")  # a reserved word

    assert asyncio.run(open_store(url).header("a")).recipient == "alice"  # the role is recorded in the database
    with pytest.raises(InvalidSetting, match="select, the role that was chosen"):
        asyncio.run(open_store(f"{url}?role=other").header("a"))
    with psycopg.connect(server.url("second")) as db, db.transaction():
        db.execute('SET LOCAL ROLE "select"')
        assert count(db, "SELECT count(*) FROM minutebook.conversation") == 0


def test_the_owner_sees_all_tenants_only_if_it_asks_for_them(url):
    fill_every_table(url)
    conversations = "SELECT count(*) FROM minutebook.conversation"

    with psycopg.connect(url) as db:
        assert count(db, conversations) == 0
        db.execute("SELECT set_config('minutebook.all_tenants', 'on', true)")
        assert count(db, conversations) == 1
        db.execute("SET LOCAL ROLE minutebook_app")
        assert count(db, conversations) == 0


def test_a_tenant_gets_a_partition_that_can_be_detached(server):
    with psycopg.connect(server.url(), autocommit=True) as db:
        db.execute("CREATE ROLE owner LOGIN CREATEROLE")
        db.execute("CREATE DATABASE chat OWNER owner")
    url = server.url("chat", "owner")
    fill_every_table(url)

    async def append(tenant, *words):
        async with open_store(url, tenant=tenant) as store:
            for word in words:
                await store.append("a", text_entries(word))
            return texts((await store.load("a", since=0)).entries)

    asyncio.run(append("acme", "1", "2"))
    with psycopg.connect(url, autocommit=True) as db:
        name = count(db, "SELECT minutebook.add_partition('acme')")
    assert asyncio.run(append("acme", "3")) == ["1", "2", "3"]
    assert asyncio.run(append("default", "more"))[-1] == "more"
    with psycopg.connect(server.url("chat")) as root:
        assert count(root, f"SELECT count(*) FROM minutebook.{name}") == 3
        options = "SELECT array_agg(attstattarget || attstorage::text ORDER BY attnum) FROM pg_attribute WHERE attnum > 0 AND attrelid = "
        assert count(root, options + f"'minutebook.{name}'::regclass") == count(
            root, options + "'minutebook.entry_others'::regclass"
        )
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"ALTER TABLE minutebook.entry DETACH PARTITION minutebook.{name}")

    async def erase():
        async with open_store(url, tenant="acme") as store:
            return (await store.erase(conversation="a")).conversations

    assert asyncio.run(erase()) == 1
    assert asyncio.run(append("default", "last"))[-1] == "last"


def test_the_error_for_a_user_who_may_not_create_the_tables_names_the_owner(url):
    with psycopg.connect(as_root(url), autocommit=True) as db:
        db.execute("DROP SCHEMA IF EXISTS minutebook CASCADE")
        name = f"guest_{threading.get_native_id()}"
        db.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        mine = f"postgresql://{name}@{db.info.host}:{db.info.port}/{db.info.dbname}"
    try:
        with pytest.raises(StoreUnavailable, match="as the owner"):
            asyncio.run(open_store(mine).header("a"))
        fill_every_table(url)
        with psycopg.connect(as_root(url), autocommit=True) as db:
            db.execute(sql.SQL("GRANT minutebook_app TO {}").format(sql.Identifier(name)))

        async def scenario():
            async with open_store(mine) as store:
                await store.append("a", text_entries("a guest's word"))
                assert (await store.header("a")).length == 17
                await expect_error(StoreUnavailable, store.vacuum())

        asyncio.run(scenario())
    finally:
        with psycopg.connect(as_root(url), autocommit=True) as db:
            db.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_no_error_contains_the_password_of_the_url(url):
    with pytest.raises(StoreUnavailable) as caught:
        asyncio.run(PostgresStore("postgresql://me:hush@127.0.0.1:1/x", timeout_seconds=1).header("a"))
    assert "hush" not in f"{caught.value!r} {caught.value}"
    with pytest.raises(InvalidSetting) as refusal:
        open_store("postgresql://me:hush@[/x?nonsense=1")
    assert "hush" not in f"{refusal.value!r} {refusal.value}"


def test_invalid_settings_are_rejected():
    for settings in ({"connections": 0}, {"timeout_seconds": 0}, {"role": "pg_monitor"}):
        with pytest.raises(InvalidSetting):
            PostgresStore("postgresql://localhost/x", **settings)
    for option in ("connections=0", "connections=many", "connections=100000", "role=a'b", "role="):
        with pytest.raises(InvalidSetting):
            PostgresStore(f"postgresql://localhost/x?{option}")


def test_the_statistics_have_the_waits_for_a_connection(url):
    async def scenario():
        async with PostgresStore(url, connections=1) as store:
            await store.append("a", text_entries("1"))
            await asyncio.gather(*(store.load("a") for _ in range(8)))
            return await store.statistics()

    statistics = asyncio.run(scenario())

    assert (statistics.connections, statistics.idle_connections, statistics.waiting_for_connection) == (1, 1, 0)
    assert statistics.connection_requests >= 8
    assert statistics.connection_wait_seconds > 0
    assert (statistics.waiting_writes, statistics.queued_jobs) == (0, None)


def test_the_size_of_the_pool_can_be_in_the_url(url):
    async def scenario():
        async with open_store(f"{url}?connections=2") as store:
            pool = await store._engine._loop_connections().pool.start()
            return store.url, pool.max_size

    assert asyncio.run(scenario()) == (url, 2)


def test_the_tables_are_created_once_when_many_open_a_new_database(url):
    with psycopg.connect(as_root(url), autocommit=True) as db:
        db.execute("DROP SCHEMA IF EXISTS minutebook CASCADE")

    async def scenario(number):
        async with open_store(url) as store:
            return await store.append("a", text_entries(f"{number}"))

    with ThreadPoolExecutor(6) as pool:
        versions = list(pool.map(lambda number: asyncio.run(scenario(number)), range(6)))

    assert sorted(versions) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("comment", "error", "match"),
    [("minutebook schema 999", StoreUnavailable, "upgrade minutebook"), ("shop", StoreDamaged, "another program")],
)
def test_a_schema_of_a_newer_version_or_another_program_is_rejected(url, comment, error, match):
    fill_every_table(url)
    with psycopg.connect(as_root(url), autocommit=True) as db:
        comment_before = count(db, "SELECT obj_description('minutebook'::regnamespace, 'pg_namespace')")
        db.execute(sql.SQL("COMMENT ON SCHEMA minutebook IS {}").format(comment))

    try:
        with pytest.raises(error, match=match):
            asyncio.run(open_store(url).header("a"))
    finally:
        with psycopg.connect(as_root(url), autocommit=True) as db:
            db.execute(sql.SQL("COMMENT ON SCHEMA minutebook IS {}").format(comment_before))


def test_a_database_with_another_encoding_is_rejected_with_advice(url):
    name = f"{psycopg.conninfo.conninfo_to_dict(url)['dbname']}_latin"
    create = "CREATE DATABASE {} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
    with psycopg.connect(as_root(url), autocommit=True) as db:
        db.execute(sql.SQL(create).format(sql.Identifier(name)))

        try:
            with pytest.raises(StoreRejected, match="create it with ENCODING 'UTF8'"):
                asyncio.run(open_store(f"{as_root(url).rpartition('/')[0]}/{name}").header("a"))
        finally:
            db.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


def test_names_of_the_maximum_length_are_found(url):
    number = random.Random(3)
    tenant, recipient, name = (
        "".join(chr(number.randrange(0x20000, 0x2A000)) for _ in range(MAX_NAME_BYTES // 4)) for _ in range(3)
    )

    async def scenario():
        async with open_store(url, tenant=tenant) as store:
            await store.append(name, text_entries("1"), recipient=recipient, idempotency_key=name)
            await store.add_fold(name, summary_fold(name, 0, 1))
            assert [header.id for header in (await store.list(recipient=recipient)).items] == [name]
            assert [stored.fold.id for stored in await store.folds(name)] == [name]
            assert (await store.erase(recipient=recipient)).conversations == 1

    asyncio.run(scenario())


def test_one_store_serves_many_threads_and_event_loops(url):
    store = open_store(url)

    def work(number):
        return asyncio.run(store.append("a", turn(number)))

    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(work, range(24)))

    async def read_length_and_close():
        length = (await store.header("a")).length
        await store.close()
        return length

    assert sorted(versions) == list(range(1, 25))
    assert asyncio.run(read_length_and_close()) == 120


def test_a_locked_conversation_does_not_block_the_others(url, monkeypatch):
    monkeypatch.setattr(postgres_writer, "GROUP_LOCK_SECONDS", 0.05)

    async def scenario():
        async with open_store(url) as store:
            await store.append("locked", text_entries("1"))
            async with await psycopg.AsyncConnection.connect(as_root(url)) as other:
                await other.execute("SELECT 1 FROM minutebook.conversation WHERE id = 'locked' FOR UPDATE")
                blocked, free = [
                    asyncio.ensure_future(store.append(name, text_entries("2"))) for name in ("locked", "free")
                ]
                assert await free == 1
                assert not blocked.done()
                await other.rollback()
                assert await blocked == 2

    asyncio.run(scenario())


def test_waiting_for_a_lock_times_out_with_an_error(url):
    async def scenario():
        async with PostgresStore(url, timeout_seconds=0.2) as store:
            await store.append("locked", text_entries("1"))
            async with await psycopg.AsyncConnection.connect(as_root(url)) as other:
                await other.execute("SELECT 1 FROM minutebook.conversation WHERE id = 'locked' FOR UPDATE")
                await expect_error(StoreUnavailable, store.append("locked", text_entries("2")))
                await other.rollback()
            assert await store.append("locked", text_entries("2")) == 2

    asyncio.run(scenario())


def test_a_read_only_database_rejects_writes(url):
    fill_every_table(url)
    with psycopg.connect(as_root(url), autocommit=True) as db:
        name = sql.Identifier(db.info.dbname)
        db.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))

    async def scenario():
        async with open_store(url) as store:
            await expect_error(StoreReadOnly, store.append("a", text_entries("x")))
            assert (await store.header("a")).length == 16

    try:
        asyncio.run(scenario())
    finally:
        with psycopg.connect(as_root(url), autocommit=True) as db:
            db.execute("SET default_transaction_read_only = off")
            db.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("53100", StoreFull),
        ("25006", StoreReadOnly),
        ("XX001", StoreDamaged),
        ("XX002", StoreDamaged),
        ("57P03", StoreUnavailable),
        ("42501", StoreRejected),
        ("42P01", StoreRejected),
        ("55P03", StoreUnavailable),
        ("22001", StoreRejected),
    ],
)
def test_server_errors_are_mapped_to_errors_of_ours(url, code, error):
    async def fail(tx):
        await tx.rows(f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}', DETAIL = 'a secret'; END $$")

    async def scenario():
        async with open_store(url) as store:
            problem = await expect_error(error, store.backend.write(fail))
            assert type(problem) is error
            assert "secret" not in str(problem)
            assert await store.append("a", text_entries("x")) == 1

    asyncio.run(scenario())


def test_a_deadlocked_transaction_is_run_again(url):
    """Two transactions lock the same rows in opposite order. The server rolls one of them back, and it is retried."""

    async def scenario():
        first_locks = [asyncio.Event(), asyncio.Event()]
        attempts = []

        async def lock_in_order(store, names, has_first_lock, other_has_first_lock):
            async def work(tx):
                attempts.append(names)
                for name in names:
                    await tx.rows("SELECT 1 FROM minutebook.conversation WHERE id = %s FOR UPDATE", name)
                    has_first_lock.set()
                    await other_has_first_lock.wait()

            await store.backend.write(work)

        async with open_store(url) as store:
            await store.append("a", text_entries("1"))
            await store.append("b", text_entries("1"))
            await asyncio.gather(
                lock_in_order(store, ("a", "b"), *first_locks), lock_in_order(store, ("b", "a"), *reversed(first_locks))
            )
        return len(attempts)

    assert asyncio.run(scenario()) >= 3


def test_pages_have_frequent_and_rare_words_once(url):
    number = random.Random(7)
    words = [["even", "odd"][at % 2] + (" rare" if number.random() < 0.02 else "") for at in range(3_000)]

    async def scenario():
        async with open_store(url) as store:
            for at in range(0, 3_000, 500):
                await store.append("a", text_entries(*words[at : at + 500]))
            for query in ("even", "rare", "odd rare"):
                expected = [position for position, text in enumerate(words) if set(query.split()) <= set(text.split())]
                positions, cursor = [], None
                while True:
                    page = await store.search(query, cursor=cursor, limit=100)
                    positions += [hit.position for hit in page.items]
                    cursor = page.cursor
                    if cursor is None:
                        break
                assert positions == expected[::-1]

    asyncio.run(scenario())


def test_a_search_reads_no_index_entries_of_a_tenant_whose_name_has_a_similar_hash(url):
    names = [f"tenant {number}" for number in range(2_000)]
    pair = [name for name in names if tenant_prefix(name)[:2] == tenant_prefix(names[0])[:2]][:2]

    async def fill():
        async with open_store(url) as store:
            for tenant in pair:
                await store.for_tenant(tenant).append("a", text_entries("the same words"), recipient="alice")

    asyncio.run(fill())
    with psycopg.connect(as_root(url)) as db:
        tokens = db.execute("SELECT tsvector_to_array(words) FROM minutebook.word ORDER BY tenant").fetchall()
    (first,), (second,) = tokens
    assert len(first) == len(second) == 5
    assert not set(first) & set(second)


def test_a_search_does_not_read_all_rows_of_the_tenant(url):
    """Neither for a frequent word, a rare one, nor one in between."""
    texts = [
        "frequent" + (" between" if at % 3 == 0 else "") + (" rare" if at % 2_000 == 0 else "") for at in range(9_000)
    ]

    async def fill():
        async with open_store(url) as store:
            for start in range(0, len(texts), 500):
                await store.append(f"c{start}", text_entries(*texts[start : start + 500]))

    rows_read = "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'word'"
    asyncio.run(fill())
    with psycopg.connect(as_root(url), autocommit=True) as db:
        # The planner is to expect as many rows as in a large database.
        db.execute("UPDATE pg_class SET relpages = 10, reltuples = 100000 WHERE oid = 'minutebook.word'::regclass")
        for word, found in {"frequent": 20, "between": 20, "rare": 5, "missing": 0}.items():
            query = tsquery(index_query(SearchQuery(parse_query(word), None, None, None, 20), "default", WORDS))
            with db.transaction():
                db.execute("SELECT set_config('minutebook.tenant', 'default', true)")
                read_before = count(db, rows_read)
                keys = db.execute("SELECT minutebook.search(%s, 0, 1::bigint << 62, 20)", (query,)).fetchall()
                read_now = count(db, rows_read) - read_before
            assert len(keys) == found
            assert read_now <= 3_200, word


def test_a_large_payload_is_stored_once_and_deleted_with_its_last_use(url):
    large = "a line of a long report\n" * 1_000
    query = "SELECT array[count(*), sum(uses)] FROM minutebook.payload"

    async def scenario():
        async with open_store(url) as store:
            with psycopg.connect(as_root(url), autocommit=True) as db:
                await store.append("a", text_entries(large, large))
                await store.append("b", text_entries(large))
                await store.fork("b", "c")
                assert count(db, query) == [1, 3]
                await store.for_tenant("another").append("b", text_entries(large))
                assert count(db, query) == [2, 4]
                await store.erase(conversation="a")
                assert count(db, query) == [2, 2]
                await store.erase(conversation="b")
                await store.for_tenant("another").erase(conversation="b")
                assert count(db, query) == [0, None]

    asyncio.run(scenario())


@pytest.mark.skipif(GIVEN is not None, reason="cannot read the files of an external server")
def test_no_erased_byte_remains_after_a_vacuum(server, monkeypatch):
    monkeypatch.setattr(
        codec, "MAX_UNCOMPRESSED_BYTES", 1 << 40
    )  # nothing is compressed, so that all texts can be found
    planted = [f"{number:05}zqx" for number in range(1_000)]

    def chat(words):
        calls = [{"id": words[1], "type": "function", "function": {"name": words[2], "arguments": words[3]}}]
        return entries_of(
            [
                {"role": "user", "content": words[0], "x": words[8]},
                {"role": "assistant", "content": None, "tool_calls": calls},
                {"role": "tool", "tool_call_id": words[1], "content": f"{words[4]} {'long ' * 2_000}"},
                {"role": "assistant", "content": [{"type": "text", "text": words[5]}]},
            ]
        )

    def left():
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute("ANALYZE")
            db.execute("CHECKPOINT")
        files = [file for file in sorted((server.folder / "data").rglob("*")) if file.is_file()]
        return {word for file in files for word in re.findall(rb"alicezqx|\d{5}zqx", file.read_bytes())}

    async def scenario():
        async with open_store(server.url()) as store:
            await store.append("stays", text_entries("a word that stays"), recipient="bob")
            for at in range(0, 1_000, 10):
                words = planted[at : at + 10]
                document = NewDocument(words[3], words[4], {words[5]: words[8]})
                await store.append(
                    words[6],
                    chat(words),
                    recipient="alicezqx",
                    idempotency_key=words[7],
                    labels={"l": words[9]},
                    documents=[document],
                )
                await store.acquire_lease(words[6], "a worker", seconds=60)
                await store.add_fold(words[6], summary_fold(words[7], 0, 1, words[8]))
            await store.fork(planted[6], "a fork")
            assert len((await store.search(planted[0])).items) == 1
            assert len(left()) == 1001
            await store.erase(recipient="alicezqx")
            await store.vacuum(rewrite=True)
            return await store.search("stays")

    kept = asyncio.run(scenario())

    assert left() == set()
    assert [hit.conversation for hit in kept.items] == ["stays"]


@pytest.mark.skipif(GIVEN is not None, reason="cannot read the files of an external server")
def test_no_byte_of_trimmed_messages_or_deleted_documents_remains_after_a_vacuum(server, monkeypatch):
    monkeypatch.setattr(codec, "MAX_UNCOMPRESSED_BYTES", 1 << 40)

    def left():
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute("CHECKPOINT")
        return b"".join(file.read_bytes() for file in sorted((server.folder / "data").rglob("*")) if file.is_file())

    async def scenario():
        async with open_store(server.url()) as store:
            await plant(store)
            assert gone_in(left()) == GONE
            await remove(store)
            assert [hit.position for hit in (await store.search(STAYS)).items] == [2]

    asyncio.run(scenario())

    assert gone_in(left()) == []


@pytest.mark.parametrize(("search", "most"), [(False, 1.4), (True, 3)])
def test_the_tables_are_not_much_larger_than_the_text(url, search, most):
    chat = coding_session(turns=200)
    size = "SELECT sum(pg_table_size(oid) + pg_indexes_size(oid))::bigint FROM pg_class WHERE relkind = 'r'"
    here = " AND relnamespace = 'minutebook'::regnamespace AND pg_relation_size(oid) > 0"

    async def scenario():
        async with open_store(url, search=search) as store:
            chat_exchanges = exchanges(chat)
            for index in range(0, len(chat_exchanges), 20):
                batch = chat_exchanges[index : index + 20]
                await store.append("a", entries_of(chat[batch[0].start : batch[-1].stop]))

    with psycopg.connect(as_root(url), autocommit=True) as db:
        db.execute("DROP SCHEMA IF EXISTS minutebook CASCADE")
    asyncio.run(scenario())

    with psycopg.connect(as_root(url), autocommit=True) as db:
        db.execute("VACUUM")
        table_bytes = count(db, size + here)
    text_characters = sum(len(text_of(message)) for message in chat)
    assert table_bytes <= most * text_characters


def test_every_query_uses_an_index_with_and_without_table_statistics(url, monkeypatch):
    """No plan scans a whole table or sorts all rows of a tenant."""
    recorded = []
    query = TenantConnection.query

    async def record_and_query(self, *queries):
        recorded.extend(queries)
        return await query(self, *queries)

    async def use(store, number):
        recorded.clear()
        for _ in range(2):  # the second one finds the idempotency key, and reads under locks
            await store.append(f"c{number}", text_entries("more"), idempotency_key=f"k{number}", labels={"a": "b"})
        await store.load(f"c{number}", last_messages=1)
        await store.load(f"c{number}", last_turns=1)
        await store.load(f"c{number}", folded=True)
        await store.folds(f"c{number}")
        cursor = (await store.list(limit=2)).cursor
        await store.list(limit=2, cursor=cursor)
        await store.list(recipient="c7", limit=2)
        await store.list(recipient="c7", status="idle", limit=2)
        await store.list(status="active", limit=2)
        await store.search("x", limit=2)
        await store.search("more", recipient="c5")
        await store.search("more", conversation="c5")
        return list(recorded)

    async def scenario():
        with psycopg.connect(as_root(url), autocommit=True) as db:
            db.execute("DROP SCHEMA IF EXISTS minutebook CASCADE")
        monkeypatch.setattr(TenantConnection, "query", record_and_query)
        async with open_store(url) as store:
            await asyncio.gather(*(store.append(f"c{n}", text_entries("x"), idempotency_key="k") for n in range(2_000)))
            for prepare in ("SELECT 1", "ANALYZE"):
                queries = await use(store, 5)
                with psycopg.connect(as_root(url), autocommit=True, cursor_factory=psycopg.ClientCursor) as db:
                    db.execute(prepare)
                    with db.transaction(force_rollback=True):
                        db.execute("SET LOCAL ROLE minutebook_app")
                        db.execute("SET LOCAL enable_seqscan = off")
                        db.execute("SET LOCAL search_path = minutebook")
                        db.execute("SELECT set_config('minutebook.tenant', 'default', true)")
                        selects = [query for query in queries if query[0].startswith("SELECT")]
                        assert len(selects) > 10
                        for statement, values in selects:
                            if "set_config('enable_sort'" in statement:  # applies to the next statement
                                db.execute(statement)
                                continue
                            plan = "\n".join(
                                line for (line,) in db.execute(f"EXPLAIN {statement.replace('?', '%s')}", values)
                            )
                            assert "Seq Scan" not in plan, plan
                            db.execute("SET LOCAL enable_sort = on")
                            db.execute("SET LOCAL enable_bitmapscan = on")
                            few_rows = ("FOR UPDATE", "FOR SHARE", "ORDER BY position", "conversation = ANY(ARRAY(")
                            may_sort = any(clause in statement for clause in few_rows)
                            sorted_indexes = re.findall(r"-> +(?:Incremental )?Sort (?:.*\n)*?.* using (\w+)", plan)
                            assert may_sort or set(sorted_indexes) <= {"conversation_pkey"}, plan  # one row at most
                            whole_tenant = re.findall(
                                r"Index Cond: \(tenant = (?:'[^()]*COLLATE \"C\"|current_setting\([^()]*\))\)$",
                                plan,
                                re.MULTILINE,
                            )
                            assert not whole_tenant or "LIMIT" in statement, plan

    asyncio.run(scenario())


def test_an_encrypted_search_has_more_than_one_page():
    require_postgres()
    new_url = shared.empty()

    async def scenario():
        async with encrypted(open_store(new_url), bytes(32)) as store:
            for number in range(3):
                await store.append(f"c{number}", text_entries("the same words"))
            conversations, cursor = [], None
            while not conversations or cursor is not None:
                page = await store.search("words", limit=1, cursor=cursor)
                conversations, cursor = [*conversations, *(hit.conversation for hit in page.items)], page.cursor
            return conversations

    assert asyncio.run(scenario()) == ["c2", "c1", "c0"]


def test_an_erasure_does_not_wait_for_one_of_another_tenant(url):
    async def scenario():
        async with PostgresStore(url, timeout_seconds=1) as store:
            await store.append("a", text_entries("1"))
            async with await psycopg.AsyncConnection.connect(as_root(url)) as other:
                # What an erasure of another tenant that is not committed yet has done.
                tables = "ARRAY['minutebook.conversation'::regclass::oid, 'minutebook.entry_others'::regclass::oid]"
                await other.execute(f"SELECT minutebook.mark_removed({tables})")
                receipt = await store.erase(conversation="a")
                await other.rollback()
                return receipt.conversations

    assert asyncio.run(scenario()) == 1


def test_the_jobs_of_an_erased_conversation_are_found_by_an_index(url):
    async def scenario():
        async with open_store(url) as store:
            await store.create_job_tables()

    asyncio.run(scenario())
    with psycopg.connect(as_root(url), autocommit=True) as db:
        body = db.execute("SELECT prosrc FROM pg_proc WHERE proname = 'cancel'").fetchone()[0]
        statement = body.replace("unnest(conversations)", "unnest(ARRAY['a'])")
        db.execute("SET search_path = minutebook_jobs")
        db.execute("SET minutebook.tenant = 'default'")
        db.execute("SET enable_seqscan = off")
        plan = "\n".join(line for (line,) in db.execute(f"EXPLAIN {statement}"))
    assert "Index Cond: (queueing_lock = ANY" in plan, plan
