"""Encryption: nothing readable in files, no ciphertext that can be moved, and keys that are rotated and destroyed."""

import asyncio
import pickle
import shutil
from dataclasses import replace
from datetime import timedelta

import pytest

from minutebook.errors import (
    BrokenConversation,
    ConversationErased,
    ConversationNotFound,
    InvalidSetting,
    StoreDamaged,
    WrongKey,
)
from minutebook.record.fold import Fold
from minutebook.record.message import MessageRole
from minutebook.store import codec
from minutebook.store.base import ConversationStore
from minutebook.store.encryption import encrypted
from minutebook.store.encryption.cipher import CIPHERTEXT
from minutebook.store.encryption.keyring import KEY_LABEL
from minutebook.store.memory import MemoryEngine, MemoryStore
from minutebook.store.sql import entries, headers
from minutebook.store.sqlite.store import SqliteBackend
from minutebook.store.sqlite.store import run as run_now
from minutebook.store.sqlite.transaction import SqliteTransaction
from minutebook.store.types import NewDocument
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import entries_of, summary_fold, text_entries, texts, turn, turns

KEY, NEW_KEY = b"k" * 32, b"n" * 32
PLANTED = [f"planted{number:04d}planted" for number in range(200)]


def run(work):
    return asyncio.run(work)


def chat_with(words):
    """A conversation that has each of these words somewhere: in texts, calls, results, keys and models."""
    kinds = [
        lambda word, _: [{"role": "user", "content": f"I am {word}, really"}],
        lambda word, _: [{"role": "assistant", "content": [{"type": "text", "text": word}]}],
        lambda word, _: [{"role": "user", "content": "x", word: 1}],
        lambda word, at: messages_with_call(f"id{at}", "look", word, "found"),
        lambda word, at: messages_with_call(f"id{at}", word, "{}", "found"),
        lambda word, at: messages_with_call(f"id{at}", "look", "{}", f"found {word} " * 800),
        lambda word, _: messages_with_call(word, "look", "{}", "found"),
    ]
    return [message for at, word in enumerate(words) for message in kinds[at % len(kinds)](word, at)]


def messages_with_call(call_id, name, arguments, result):
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "name": name, "content": result},
    ]


async def plant(store):
    """Store every word somewhere: in messages, folds, documents and fields of entries."""
    *message_words, shown, reason, provider, model = PLANTED
    documents = [NewDocument("reply", "r", {PLANTED[0]: [PLANTED[1], {PLANTED[2]: PLANTED[3]}]})]
    entries = entries_of([{"role": "user", "content": "hello"}, *chat_with(message_words)])
    entries[0] = replace(entries[0], provider=provider, model=model)
    await store.append("a", entries, recipient="alice", idempotency_key="k", documents=documents)
    await store.add_fold("a", Fold("f", 0, 1, ({"role": "system", "content": shown},), reason))
    return entries


async def everything_in(store):
    """Everything that a store returns of a conversation, whatever the encoding in its file."""
    shown = "\n".join([line async for line in store.export("a")]) + repr(await store.load("a"))
    return shown + repr(await store.document("reply", "r"))


def found_in(folder):
    kept = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    return [word for word in PLANTED if word.encode() in kept]


def test_no_planted_word_is_in_any_byte_of_the_files(tmp_path):
    async def work():
        async with encrypted(open_store(f"sqlite:///{tmp_path}/chat.db"), KEY) as store:
            entries = await plant(store)
            assert (await store.search(PLANTED[0])).items
            assert found_in(tmp_path) == []
            shown = await everything_in(ConversationStore(store.backend._inner))
            assert [word for word in PLANTED if word in shown] == []
            assert (await store.load("a")).entries == tuple(entries)
            assert [stored.fold.reason for stored in await store.folds("a")] == [PLANTED[-3]]
        assert found_in(tmp_path) == []

    run(work())


def test_without_encryption_planted_words_are_found(tmp_path, monkeypatch):
    """The test above can fail."""
    monkeypatch.setattr(
        codec, "MAX_UNCOMPRESSED_BYTES", 1 << 40
    )  # nothing is deflated, so that everything could be found

    async def work():
        async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
            await plant(store)
            assert len(found_in(tmp_path)) > 50
            shown = await everything_in(store)
            assert [word for word in PLANTED if word in shown] == PLANTED

    run(work())


def test_the_same_text_has_different_ciphertexts():
    async def work():
        inner = MemoryStore()
        store = encrypted(inner, KEY)
        await store.append("a", text_entries("yes", "yes", "yes"), recipient="alice")
        await store.append("b", text_entries("yes"), recipient="alice")

        kept = [*(await inner.load("a")).entries, *(await inner.load("b")).entries]
        assert len({entry.extras[CIPHERTEXT] for entry in kept}) == 4

    run(work())


def test_a_wrong_key_is_reported(tmp_path):
    url = f"sqlite:///{tmp_path}/chat.db"

    async def work():
        async with encrypted(open_store(url), KEY) as store:
            await store.append("a", text_entries("secret"))
        with pytest.raises(WrongKey) as found:
            async with encrypted(open_store(url), NEW_KEY):
                pass
        assert "old_keys" in str(found.value)
        assert "nnnn" not in str(found.value)
        stranger = encrypted(open_store(url), NEW_KEY)
        for attempt in (stranger.load("a"), stranger.append("a", text_entries("x")), stranger.search("secret")):
            with pytest.raises(WrongKey):
                await attempt
        await stranger.close()
        async with encrypted(open_store(url), NEW_KEY, old_keys=[KEY]) as store:
            assert texts((await store.load("a")).entries) == ["secret"]

    run(work())


@pytest.mark.parametrize("key", [b"", b"short", b"x" * 33, "x" * 32])
def test_a_key_has_32_bytes_and_is_not_in_the_error(key):
    with pytest.raises(InvalidSetting) as found:
        encrypted(MemoryStore(), key)

    assert "xxx" not in str(found.value)


class Rows:
    """Reads and overwrites the entries of a conversation in a memory store."""

    def __init__(self, store, conversation):
        self._tx = SqliteTransaction(store._engine._db, store.tenant)
        self._row = run_now(headers.get(self._tx, conversation))

    def __getitem__(self, position):
        return run_now(entries.read(self._tx, [self._row.span(position)]))[1][0]

    def __setitem__(self, position, entry):
        run_now(self._tx.replace_entries(self._row, {position: (0, codec.pack(entry)[0])}))


def swap(rows, one, other):
    rows[one], rows[other] = rows[other], rows[one]


def change(rows, position, **changes):
    rows[position] = replace(rows[position], **changes)


TAMPERINGS = {
    "a changed letter": lambda a, b: change(a, 0, extras={CIPHERTEXT: a[0].extras[CIPHERTEXT][:-2] + "AA"}),
    "no base64": lambda a, b: change(a, 0, extras={CIPHERTEXT: "°"}),
    "too little": lambda a, b: change(a, 0, extras={CIPHERTEXT: "AAAA"}),
    "nothing": lambda a, b: change(a, 0, extras={}),
    "another role": lambda a, b: change(a, 0, role=MessageRole.SYSTEM),
    "the order": lambda a, b: swap(a, 0, 1),
    "another conversation's": lambda a, b: a.__setitem__(0, b[0]),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_a_changed_or_moved_entry_is_reported_as_damage(tampering):
    async def work():
        inner = MemoryStore()
        store = encrypted(inner, KEY)
        await store.append("a", text_entries("one", "two"), recipient="alice")
        await store.append("b", text_entries("three", "four"), recipient="alice")
        await store.load("a")
        TAMPERINGS[tampering](Rows(inner, "a"), Rows(inner, "b"))

        with pytest.raises(StoreDamaged):
            await store.load("a")

    run(work())


def test_a_fold_moved_to_another_conversation_or_range_is_reported_as_damage():
    async def work():
        inner = MemoryStore()
        store = encrypted(inner, KEY)
        for name in ("a", "b"):
            await store.append(name, turns(2), recipient="alice")
            await store.add_fold(name, summary_fold("f", 0, 5, f"summary of {name}"))
        db = inner._engine._db
        for change_row in (
            "UPDATE fold SET body = (SELECT body FROM fold WHERE conversation = 3) WHERE conversation = 2",
            "UPDATE fold SET stop = 10 WHERE conversation = 2",
            "UPDATE fold SET id = 'g' WHERE conversation = 2",
        ):
            assert len(await store.folds("a")) == 1
            db.execute("BEGIN")
            db.execute(change_row)
            with pytest.raises(StoreDamaged):
                await store.folds("a")
            db.execute("ROLLBACK")

    run(work())


def test_a_fork_reads_shared_entries_and_detects_one_that_is_not_its_own():
    async def work():
        inner = MemoryStore()
        store = encrypted(inner, KEY)
        await store.append("a", turns(3))
        await store.fork("a", "b", at=10)
        await store.append("b", turn(7))
        await store.append("b", turn(8))
        await store.fork("b", "c", at=15)
        await store.append("c", turn(9))
        assert (await store.load("c")).entries == (*turns(2), *turn(7), *turn(9))

        Rows(inner, "b")[10] = Rows(inner, "a")[10]
        with pytest.raises(StoreDamaged):
            await store.load("b")

    run(work())


def test_a_document_moved_to_another_conversation_or_id_is_reported_as_damage():
    async def work():
        inner = MemoryStore()
        async with encrypted(inner, KEY) as store:
            await store.append("a", text_entries("x"), documents=[NewDocument("reply", "r", {"mine": 1})])
            await store.append("b", text_entries("x"), recipient="a")
            encrypted_body = (await inner.document("reply", "r")).body
            await inner.put_document("a", NewDocument("reply", "other", encrypted_body))
            await inner.delete_document("reply", "r")
            await inner.put_document("b", NewDocument("reply", "r", encrypted_body))
            for name in ("other", "r"):
                with pytest.raises(StoreDamaged):
                    await store.document("reply", name)

    run(work())


def test_trimming_checks_the_plain_message_and_encrypts_the_new_one():
    async def work():
        inner = MemoryStore()
        async with encrypted(inner, KEY) as store:
            chat = messages_with_call("c", "look", "aaaa" * 1_000, "b" * 1_000)
            await store.append("a", entries_of(chat))
            shorter = {**chat[1], "content": PLANTED[0]}  # smaller, and yet larger once both are deflated
            with pytest.raises(InvalidSetting):
                await store.trim("a", {1: {**chat[1], "content": "b" * 1_001}})
            assert await store.trim("a", {1: shorter}) == 1
            assert await store.trim("a", {1: shorter}) == 0
            assert (await store.load("a")).messages == [chat[0], shorter]
            assert PLANTED[0] not in repr(await inner.load("a"))

    run(work())


def test_a_conversation_that_is_not_encrypted_is_rejected():
    async def work():
        inner = MemoryStore()
        await inner.append("a", text_entries("plain"))

        with pytest.raises(StoreDamaged):
            await encrypted(inner, KEY).load("a")

    run(work())


def test_after_a_rotation_the_old_key_is_not_needed(tmp_path):
    url = f"sqlite:///{tmp_path}/chat.db"

    async def work():
        async with encrypted(open_store(url), KEY) as store:
            for number in range(5):
                await store.append(f"c{number}", text_entries(f"text {number}"), recipient=f"r{number % 3}")
            before = [await store.load(f"c{number}") for number in range(5)]
            assert await store.rotate(NEW_KEY) == 3
            assert await store.rotate(NEW_KEY) == 0
            await store.append("c0", text_entries("after"))
            await store.append("new", text_entries("new"))
        async with encrypted(open_store(url), NEW_KEY) as store:
            assert [await store.load(f"c{number}") for number in range(1, 5)] == before[1:]
            assert texts((await store.load("c0")).entries) == ["text 0", "after"]
        with pytest.raises(WrongKey):
            async with encrypted(open_store(url), KEY):
                pass

    run(work())


def test_a_backup_is_unreadable_once_the_recipient_is_erased(tmp_path):
    live, backup, keys = tmp_path / "chat.db", tmp_path / "backup.db", tmp_path / "keys.db"

    async def work():
        async with encrypted(open_store(f"sqlite:///{live}"), KEY, keys=open_store(f"sqlite:///{keys}")) as store:
            await store.append("a", text_entries("secret"), recipient="alice")
            await store.append("b", text_entries("other"), recipient="bob")
        shutil.copy(live, backup)
        async with encrypted(open_store(f"sqlite:///{live}"), KEY, keys=open_store(f"sqlite:///{keys}")) as store:
            assert (await store.erase(recipient="alice")).conversations == 1
            await store.vacuum()
            assert await store.append("a2", text_entries("back again"), recipient="alice") == 1
        async with encrypted(open_store(f"sqlite:///{backup}"), KEY, keys=open_store(f"sqlite:///{keys}")) as store:
            for attempt in (store.load("a"), store.append("a", text_entries("late"))):
                with pytest.raises(ConversationErased):
                    await attempt
            assert texts((await store.load("b")).entries) == ["other"]

    run(work())


def test_each_recipient_has_one_key():
    async def work():
        inner = MemoryStore()
        store = encrypted(inner, KEY)
        for name, recipient in (("a1", "alice"), ("a2", "alice"), ("b", "bob")):
            await store.append(name, text_entries("x"), recipient=recipient)
        key_ids = {name: (await inner.header(name)).labels[KEY_LABEL] for name in ("a1", "a2", "b")}

        assert key_ids["a1"] == key_ids["a2"] != key_ids["b"]
        assert dict((await store.header("a1")).labels) == {}
        with pytest.raises(InvalidSetting):
            await store.set_labels("a1", {KEY_LABEL: None})
        with pytest.raises(InvalidSetting):
            await store.append("new", text_entries("x"), labels={KEY_LABEL: "mine"})

    run(work())


def test_concurrent_writes_of_two_stores_are_read_by_both(tmp_path):
    url = f"sqlite:///{tmp_path}/chat.db"

    async def work():
        async with encrypted(open_store(url), KEY) as one, encrypted(open_store(url), KEY) as other:
            appends = (store.append("a", turn(number)) for number in range(8) for store in (one, other))
            assert sorted(await asyncio.gather(*appends)) == list(range(1, 17))
            retries = (store.append("b", turn(1), idempotency_key="k") for _ in range(4) for store in (one, other))
            assert await asyncio.gather(*retries) == [1] * 8
            assert (await one.load("a")).entries == (await other.load("a")).entries
            assert (await one.load("b")).entries == tuple(turn(1))

    run(work())


def test_nothing_unreadable_is_left_when_a_recipient_is_erased_while_writing(tmp_path):
    async def work():
        async with encrypted(open_store(f"sqlite:///{tmp_path}/chat.db"), KEY) as store:
            for round_ in range(6):
                names = [f"{round_} {number}" for number in range(12)]
                appends = [store.append(name, text_entries(name), recipient="alice") for name in names]
                appends.insert(round_ * 2, store.erase(recipient="alice"))
                answers = await asyncio.gather(*appends, return_exceptions=True)
                assert {type(answer).__name__ for answer in answers} <= {"int", "ErasureReceipt", "ConversationErased"}
                for header in (await store.list()).items:
                    assert texts((await store.load(header.id)).entries) == [header.id]

    run(work())


class Gated(SqliteBackend):
    """A backend in which one operation waits for the test."""

    def __init__(self, operation):
        super().__init__(MemoryEngine())
        self.operation, self.reached, self.gate = operation, asyncio.Event(), asyncio.Event()

    async def append(self, command):
        await self._wait("append")
        return await super().append(command)

    async def erase(self, conversation, recipient, *, block=False):
        await self._wait("erase")
        return await super().erase(conversation, recipient, block=block)

    async def _wait(self, operation):
        if operation == self.operation:
            self.reached.set()
            await self.gate.wait()


def test_a_conversation_created_with_a_key_that_is_destroyed_meanwhile_is_erased():
    async def work():
        inner = Gated("append")
        store = encrypted(ConversationStore(inner), KEY, keys=MemoryStore())
        writing = asyncio.create_task(store.append("a", text_entries("x"), recipient="alice"))
        await inner.reached.wait()
        await store.erase(recipient="alice")
        inner.gate.set()

        with pytest.raises(ConversationErased):
            await writing
        assert (await store.list()).items == ()

    run(work())


def test_a_conversation_created_during_the_erasure_is_erased_too():
    async def work():
        keys = Gated("erase")
        store = encrypted(MemoryStore(), KEY, keys=ConversationStore(keys))
        await store.append("a", text_entries("x"), recipient="alice")
        erasing = asyncio.create_task(store.erase(recipient="alice"))
        await keys.reached.wait()
        assert await store.append("b", text_entries("y"), recipient="alice") == 1
        keys.gate.set()

        assert (await erasing).conversations == 2
        assert (await store.list()).items == ()
        with pytest.raises(ConversationErased):
            await store.header("b")

    run(work())


def test_errors_have_the_plain_ids_of_calls():
    async def work():
        store = encrypted(MemoryStore(), KEY)
        await store.append("a", turn(0)[:2])

        with pytest.raises(BrokenConversation) as found:
            await store.append("a", text_entries("meanwhile"))
        assert "call_0_0" in str(found.value)
        pickle.dumps(found.value)

    run(work())


def test_a_handle_of_another_tenant_vacuums_the_database_once():
    vacuums = []

    class CountingBackend(SqliteBackend):
        async def vacuum(self, *, rewrite=False):
            vacuums.append(self.tenant)
            await super().vacuum(rewrite=rewrite)

    async def work():
        inner = MemoryStore()
        inner.backend.__class__ = CountingBackend
        await encrypted(inner, KEY).for_tenant("other").with_expiry(timedelta(days=1)).vacuum()

    run(work())

    assert vacuums == ["other"]


def test_the_tenant_of_the_keys_is_hidden():
    async def work():
        inner = MemoryStore()
        store = encrypted(inner, KEY)
        await store.append("a", text_entries("x"))

        assert [header.id for header in (await inner.list()).items] == ["a"]
        assert (await store.erase(recipient="a")).conversations == 1
        with pytest.raises(ConversationNotFound):
            await store.load("a")

    run(work())
