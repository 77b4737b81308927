"""What only Redis has: cluster slots, expiry, server failures and concurrent scripts."""

import asyncio
import logging
import random
import threading
from datetime import UTC, datetime

import pytest
import redis

from minutebook.errors import (
    ConversationErased,
    ConversationNotFound,
    InvalidSetting,
    StoreDamaged,
    StoreFull,
    StoreReadOnly,
    StoreRejected,
    StoreUnavailable,
)
from minutebook.store import codec
from minutebook.store.backend import AppendCommand
from minutebook.store.codec import pack
from minutebook.store.redis import leases as redis_leases
from minutebook.store.redis.append import entry_args, new_row
from minutebook.store.redis.rows import new_header_fields
from minutebook.store.types import NewDocument
from minutebook.store.url import open_store
from minutebook.testing import StoreContract
from minutebook.testing.contract.samples import summary_fold, text_entries, texts, turn, turns
from tests.store.deleted_data import GONE, STAYS, gone_in, plant, remove
from tests.store.redis.servers import Server, free_port, new_url, prefix_of
from tests.store.writing import acknowledged, start, whole_turns

LARGE = "a long report " * 1_000


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path / "server", "--appendonly", "yes", "--appendfsync", "always") as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One node with all slots. Like every cluster, it rejects commands on keys in two slots."""
    port = ("--cluster-port", str(free_port()))
    with Server(tmp_path_factory.mktemp("cluster"), "--cluster-enabled", "yes", *port) as running:
        with redis.Redis.from_url(running.url) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while "cluster_state:ok" not in str(client.execute_command("CLUSTER", "INFO")):
                pass
        yield running


class TestCluster(StoreContract):
    @pytest.fixture
    def store(self, cluster, request):
        return open_store(f"{cluster.url}?prefix={request.node.name}:")


def using(url, work):
    async def run():
        async with open_store(url) as store:
            return await work(store)

    return asyncio.run(run())


def test_the_key_of_a_recipient_is_the_documented_one():
    url = new_url()

    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("1"), recipient="alice")
            await store.append("b", text_entries("1"), recipient="x/y{z}")
            await store.for_tenant("x").append("c", text_entries("1"), recipient="y{z}")

    asyncio.run(scenario())
    prefix = prefix_of(url)
    with redis.Redis.from_url(url.partition("?")[0], decode_responses=True) as client:
        (member,) = client.zrange(f"{prefix}conversation:{{alice}}", 0, -1)
        assert member.endswith("a")
        assert client.exists(f"{prefix}conversation:{{alice}}:header:a")
        assert client.exists(f"{prefix}conversation:{{x%2Fy%7Bz%7D}}")
        assert client.exists(f"{prefix}conversation:{{x/y%7Bz%7D}}")


def keys(url):
    with redis.Redis.from_url(url.partition("?")[0]) as client:
        return sorted(key.decode() for key in client.scan_iter(match=f"{prefix_of(url)}*", count=1000))


def keys_of_conversation(url, name):
    return [key for key in keys(url) if key.endswith(f":{name}")]


def expiry_times(url, name):
    with redis.Redis.from_url(url.partition("?")[0]) as client:
        return {client.pexpiretime(key) for key in keys_of_conversation(url, name)}


def expire(url, name):
    """Let a conversation expire."""
    with redis.Redis.from_url(url.partition("?")[0]) as client:
        for key in keys_of_conversation(url, name):
            client.pexpireat(key, 1)


async def write_everything(store, name):
    """Write everything that a conversation can have, one operation after the other."""
    yield await store.append(name, turns(3), recipient="alice", idempotency_key="k")
    yield await store.append(name, text_entries(LARGE))
    yield await store.add_fold(name, summary_fold("f", 0, 5))
    yield await store.pin(name, 7)
    yield await store.set_labels(name, {"x": "y"})
    yield await store.purge(name, before=5)
    yield await store.undo_fold(name, (await store.add_fold(name, summary_fold("g", 5, 10))).fold.id)
    yield await store.append(name, turn(9), idempotency_key="l")
    ends = datetime(2100, 1, 1, tzinfo=UTC)
    yield await store.put_document(name, NewDocument("reply", f"r {name}", {"x": 1}, ends))
    yield await store.append(name, turn(10), documents=[NewDocument("reply", f"s {name}", {"x": 1})])
    yield await store.append(name, turn(11), lease=await store.acquire_lease(name, "w", seconds=60))
    yield await store.trim(name, {7: {"role": "tool", "tool_call_id": "call_1_0", "content": ""}})


def test_all_keys_of_a_conversation_expire_at_the_same_time():
    url = new_url(ttl=3600)

    async def write(store):
        async for _ in write_everything(store, "a"):
            assert len(expiry_times(url, "a")) == 1
        assert len(keys_of_conversation(url, "a")) == 15
        await store.fork("a", "b", at=10)
        assert len(expiry_times(url, "a") | expiry_times(url, "b")) == 1

    using(url, write)

    assert expiry_times(url, "a") != {-1}


def test_an_append_extends_the_lifetime_of_a_conversation_and_its_origins():
    url = new_url(ttl=100)
    longer = url.replace("ttl=100", "ttl=1000")

    async def fork(store):
        await store.append("a", turns(2))
        await store.fork("a", "b", at=5)
        await store.fork("b", "c")

    using(url, fork)
    before = expiry_times(url, "a")
    using(longer, lambda store: store.append("c", text_entries("more")))

    after = expiry_times(url, "a") | expiry_times(url, "b") | expiry_times(url, "c")
    assert len(after) == 1
    assert min(after) > max(before) + 800_000

    using(longer.replace("ttl=1000", "ttl=10000"), lambda store: store.fork("c", "d"))
    last = {time for name in "abcd" for time in expiry_times(url, name)}
    assert len(last) == 1
    assert min(last) > max(after) + 8_000_000


def test_an_append_succeeds_even_if_its_lease_cannot_be_released(monkeypatch):
    async def fail_to_release(_index, _lease):
        raise redis.ConnectionError

    async def main():
        async with open_store(new_url()) as store:
            lease = await store.acquire_lease("a", "w", seconds=60)
            monkeypatch.setattr(redis_leases, "release", fail_to_release)
            assert await store.append("a", text_entries("1"), lease=lease, release=True) == 1
            return texts((await store.load("a")).entries)

    assert asyncio.run(main()) == ["1"]


def test_without_a_ttl_nothing_expires():
    url = new_url()

    async def write(store):
        async for _ in write_everything(store, "a"):
            pass

    using(url, write)

    assert expiry_times(url, "a") == {-1}


def test_an_expired_conversation_is_removed_completely_and_its_id_can_be_used_again():
    url = new_url(ttl=3600)

    async def work(store):
        async for _ in write_everything(store, "a"):
            pass
        await store.append("b", text_entries("stays"), recipient="alice")
        expire(url, "a")

        with pytest.raises(ConversationNotFound) as found:
            await store.load("a")
        assert not isinstance(found.value, ConversationErased)
        assert [header.id for header in (await store.list()).items] == ["b"]
        assert [header.id for header in (await store.list(recipient="alice")).items] == ["b"]
        assert (await store.search("question")).items == ()
        assert (await store.erase(conversation="a")).conversations == 0
        assert await store.append("a", text_entries("new"), recipient="bob", idempotency_key="k") == 1
        assert texts((await store.load("a")).entries) == ["new"]
        assert [header.id for header in (await store.list()).items] == ["a", "b"]

    using(url, work)


def test_vacuum_removes_the_ids_of_expired_conversations():
    url = new_url(ttl=3600)

    async def work(store):
        await store.append("telephone-1234", text_entries("x"), recipient="alice")
        await store.append("b", text_entries("y"), recipient="alice")
        expire(url, "telephone-1234")
        await store.vacuum()

        assert [header.id for header in (await store.list()).items] == ["b"]

    using(url, work)
    with redis.Redis.from_url(url.partition("?")[0]) as client:
        values = [client.dump(key) for key in keys(url)]
    assert not [value for value in values if b"telephone" in value]


def test_names_with_braces_and_slashes_do_not_collide():
    url = new_url()
    names = ["{a}", "a}{b", "{", "}", "a/b", "a%2Fb", "%7Ba%7D", "a:b", "a", "header:a"]

    async def work(store):
        for tenant in ("t", "t/a", "{t}", "t%2Fa"):
            other = store.for_tenant(tenant)
            for name in names:
                await other.append(name, text_entries(f"{tenant} {name}"), recipient=names[-names.index(name)])
                await other.fork(name, f"fork of {name}")
            for name in names:
                assert texts((await other.load(f"fork of {name}")).entries) == [f"{tenant} {name}"]
        await store.for_tenant("t").append("c", text_entries("one"), recipient="a/b")
        await store.for_tenant("t/a").append("c", text_entries("two"), recipient="b")
        assert texts((await store.for_tenant("t").load("c")).entries) == ["one"]
        await store.for_tenant("t/a").erase(conversation="c")
        assert (await store.for_tenant("t").erase(recipient="{a}")).conversations == 2
        assert len((await store.for_tenant("t/a").list()).items) == 20

    using(url, work)


def test_any_thread_and_event_loop_may_use_a_handle():
    store = open_store(new_url())
    threads = [
        threading.Thread(target=lambda number=number: asyncio.run(store.append("a", text_entries(f"{number}"))))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(texts(asyncio.run(store.load("a")).entries)) == [f"{number}" for number in range(8)]
    asyncio.run(store.close())


def test_two_processes_write_one_conversation_and_each_keeps_its_order():
    url = new_url()

    both = [start(url, "a", 5, 8, name) for name in ("left", "right")]
    seen = [acknowledged(process, 1_000) for process in both]

    stored = whole_turns(url, "a")
    assert sorted(stored) == sorted(seen[0] + seen[1])
    assert len(stored) == 80
    for name in ("left", "right"):
        for writer in range(5):
            mine = [key for key in stored if key.startswith(f"{name} {writer} ")]
            assert mine == [f"{name} {writer} {number}" for number in range(8)]


@pytest.mark.slow
def test_a_killed_server_loses_nothing_that_was_acknowledged(server):
    seen, number = [], random.Random(5)

    for kill in range(4):
        process = start(server.url, "a", 4, 10_000, f"run{kill}")
        lines = number.randint(5, 60)
        mine = []
        for key in process.acknowledged_keys():
            mine.append(key)
            if len(mine) == lines:
                server.kill()
        assert process.wait() != 0
        seen += mine
        server.start()

    stored = whole_turns(server.url, "a")
    assert set(seen) <= set(stored)
    assert len(stored) == len(set(stored))
    assert len(stored) - len(seen) <= 4 * 4


def test_operations_fail_while_the_server_is_down(server):
    async def work(store):
        assert store.durable is True
        await store.append("a", text_entries("before"))
        server.kill()
        attempts = (store.append("a", text_entries("lost")), store.load("a"), store.list(), store.vacuum())
        errors = await asyncio.gather(*attempts, return_exceptions=True)
        assert [type(error) for error in errors] == [StoreUnavailable] * len(attempts)
        server.start()
        await store.append("a", text_entries("after"))
        assert texts((await store.load("a")).entries) == ["before", "after"]

    using(server.url, work)


def test_an_unreachable_server_is_reported_without_the_password(server):
    url = f"redis://me:secret@127.0.0.1:{server.port}/0"
    server.stop()

    with pytest.raises(StoreUnavailable) as found:
        using(url, lambda store: store.list())

    assert "secret" not in str(found.value)
    assert f"127.0.0.1:{server.port}" in str(found.value)


def test_a_full_server_and_a_replica_reject_writes(server):
    async def work(store):
        await store.append("a", text_entries("1"))
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxmemory", 1)
            with pytest.raises(StoreFull):
                await store.append("a", text_entries("2"))
            with pytest.raises(StoreFull):
                await store.append("b", text_entries("2"))
            client.config_set("maxmemory", 0)
            client.replicaof("127.0.0.1", 1)
            with pytest.raises(StoreReadOnly):
                await store.append("a", text_entries("2"))
            assert texts((await store.load("a")).entries) == ["1"]
            client.replicaof("NO", "ONE")
        assert await store.append("a", text_entries("2")) == 2
        assert await store.append("b", text_entries("2")) == 1

    using(server.url, work)


def test_data_that_the_server_evicted_is_reported_as_damage():
    url = new_url()

    async def work(store):
        await store.append("a", text_entries("1", "2", LARGE))
        with redis.Redis.from_url(url.partition("?")[0]) as client:
            for part, key in (("blobs", None), ("entries", "1")):
                (name,) = [name for name in keys(url) if f":{part}:" in name]
                client.hdel(name, key) if key else client.delete(name)
                with pytest.raises(StoreDamaged):
                    await store.load("a")
            client.set(name, "something else")
            with pytest.raises(StoreDamaged):
                await store.load("a")

    using(url, work)


def test_vacuum_leaves_nothing_erased_in_the_servers_files(server):
    async def work(store):
        document = NewDocument("planted-kind", "planted-id", {"planted": "planted-body"})
        await store.append("a", text_entries("planted-in-the-record"), recipient="alice", documents=[document])
        await store.append("b", text_entries("stays"))
        await store.erase(recipient="alice")
        await store.vacuum()

    using(server.url, work)

    kept = b"".join(path.read_bytes() for path in server.folder.rglob("*") if path.is_file() and path.name != "log")
    assert b"planted" not in kept
    assert b"alice" not in kept.replace(b"{alice}", b"")
    assert b"stays" in kept


def test_vacuum_leaves_no_trimmed_payload_and_no_deleted_document_in_the_servers_files(server, monkeypatch):
    monkeypatch.setattr(codec, "MAX_UNCOMPRESSED_BYTES", 1 << 40)

    def left():
        kept = [path for path in sorted(server.folder.rglob("*")) if path.is_file() and path.name != "log"]
        return b"".join(path.read_bytes() for path in kept)

    async def work(store):
        await plant(store)
        assert gone_in(left()) == GONE
        await remove(store)
        assert (await store.document("reply", "r")).body == {"text": STAYS}

    using(server.url, work)

    assert gone_in(left()) == []


def test_vacuum_removes_the_claims_of_documents_that_expired_with_their_conversation():
    url = new_url(ttl=3600)

    async def work(store):
        await store.append("a", text_entries("x"), documents=[NewDocument("reply", "r", {})])
        expire(url, "a")
        assert await store.append("b", text_entries("x")) == 1
        with redis.Redis.from_url(url.partition("?")[0]) as client:
            (listed,) = [key for key in keys(url) if key.endswith("}:documents")]
            assert client.hlen(listed) == 1
            await store.vacuum()
            assert client.hlen(listed) == 0
        assert (await store.put_document("b", NewDocument("reply", "r", {}))).conversation == "b"

    using(url, work)


def test_a_day_later_no_key_names_an_erased_recipient_and_late_writes_are_still_rejected():
    url = new_url()

    async def work(store):
        await store.append("a", text_entries("x"), recipient="alice")
        async with open_store(url) as eraser:
            await eraser.erase(recipient="alice")
            await eraser.erase(recipient="nobody")
        with redis.Redis.from_url(url.partition("?")[0]) as client:
            named = [key for key in keys(url) if "{alice}" in key]
            assert all(0 < client.pttl(key) <= 24 * 3600 * 1000 for key in named)
            assert not [key for key in keys(url) if "nobody" in key]
            client.delete(*named)
        for attempt in (store.append("a", text_entries("late")), store.load("a"), store.fork("a", "b")):
            with pytest.raises(ConversationErased):
                await attempt
        assert not [key for key in keys(url) if "{alice}" in key]

    using(url, work)


def test_a_server_that_may_lose_acknowledged_writes_causes_a_warning(caplog, tmp_path):
    with Server(tmp_path / "server", "--maxmemory-policy", "allkeys-lru") as server, caplog.at_level(logging.WARNING):

        async def work(store):
            return store.durable

        assert using(server.url, work) is False

    assert "acknowledged writes may not be on the server's disk" in caplog.text
    assert "maxmemory-policy allkeys-lru" in caplog.text


@pytest.mark.parametrize("query", ["ttl=0", "ttl=-1", "ttl=soon", "ttl=1.5", "prefix={x}"])
def test_an_invalid_option_is_rejected(query):
    with pytest.raises(InvalidSetting):
        open_store(f"redis://localhost/0?{query}")


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("localhost/0?prefx=shop", "there is no option 'prefx'"),
        ("me:secret@localhost/chats", "the database is not a number"),
        ("me:secret@localhost:99999999/0", "the port or an option has an invalid value"),
        ("me:sec/ret@localhost/0", "the database is not a number"),
        ("localhost/0?socket_timeout=soon", "the port or an option has an invalid value"),
    ],
)
def test_a_url_that_the_driver_refuses_or_ignores_is_rejected_without_quoting_it(address, problem):
    with pytest.raises(InvalidSetting, match=problem) as raised:
        open_store(f"redis://{address}")

    assert "sec" not in str(raised.value)


def test_options_of_the_driver_are_accepted():
    assert (
        open_store("rediss://localhost:6380/3?socket_timeout=5&protocol=3&ssl_cert_reqs=none&ttl=5").tenant == "default"
    )


def test_data_of_a_newer_version_is_refused():
    url = new_url()

    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("1"))
            await store.backend.set_setting("format", "2")
        async with open_store(url) as store:
            await store.load("a")

    with pytest.raises(StoreRejected, match="has data of format 2, but this version supports 1; upgrade minutebook"):
        asyncio.run(scenario())


def test_an_id_claimed_by_a_process_that_died_can_be_claimed_again():
    url = new_url()
    at = datetime(2026, 1, 1, tzinfo=UTC)

    async def work(store):
        index = store.backend.index
        lost = await store._engine.run(lambda: index.claim_id("a", "alice", 0))
        with pytest.raises(ConversationNotFound):
            await store.header("a")
        assert (await store.list()).items == ()
        assert await store.append("a", text_entries("1"), recipient="bob") == 1

        packed, messages = zip(*map(pack, text_entries("late")), strict=True)
        late = AppendCommand("a", packed, messages, recipient="alice")
        fields = new_header_fields(new_row(late, "default", lost, at))
        args = [index.id_hash("a"), lost.nonce, "", b"", b"", "", lost.rank + "a", "", 0, 0]
        args += [len(fields), *fields, *entry_args(packed, 0)]
        keys = index.keys_of_claim("a", "alice", lost.nonce)
        reply = await store._engine.run(lambda: store._engine.run_script("append", keys, args))

        assert reply == [b"void"]
        assert [(header.id, header.recipient) for header in (await store.list()).items] == [("a", "bob")]

    using(url, work)


def test_an_interrupted_erasure_is_completed_by_the_next():
    url = new_url()

    async def work(store):
        await store.append("a", text_entries("x"), recipient="alice")
        keys = store.backend.index.keys
        claims, order, *_ = keys.index
        erased_ids = keys.erased_ids("alice")
        with redis.Redis.from_url(url.partition("?")[0]) as client:
            claim, member = client.hget(claims, "a"), client.zrange(order, 0, -1)[0]
            await store.erase(recipient="alice")
            client.hset(claims, "a", claim)
            client.zadd(order, {member: 0})
            client.sadd(erased_ids, "a")

            assert (await store.list()).items == ()
            with pytest.raises(ConversationErased):
                await store.append("a", text_entries("late"), recipient="alice")
            assert (await store.erase(recipient="alice")).conversations == 0
            assert not client.exists(claims, order, erased_ids)

    using(url, work)
