"""Random sequences of operations on every store, compared with a model."""

import asyncio
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from minutebook import Fold
from minutebook.errors import (
    BrokenConversation,
    ConversationBusy,
    ConversationErased,
    ConversationNotFound,
    DocumentExists,
    DocumentNotFound,
    FoldConflict,
    IdempotencyConflict,
    InvalidSetting,
    LeaseLost,
    VersionConflict,
)
from minutebook.record import exchanges
from minutebook.record.message import text_of
from minutebook.store.types import ConversationStatus, NewDocument
from minutebook.store.words import words
from minutebook.testing.contract.samples import entries_of
from minutebook.wire.chat import entry_to_provider_message
from tests.store.backends import BACKENDS, each_backend
from tests.store.deleted_data import LONG_AGO
from tests.store.model import ModelConversation, ModelDocument
from tests.strategies import conversations
from tests.strategies import exchanges as exchange_of

MEMORY = Path("/dev/shm")
"""A folder in memory, if there is one: these tests need no disk. Crashes are tested elsewhere."""
NAMES = ("a", "b", "c", "d")
names = st.sampled_from(NAMES)
positions = st.integers(0, 40)
documents = st.tuples(st.sampled_from(["k", "l"]), st.sampled_from(["1", "2", "3"]), st.integers(0, 2))
holders = st.sampled_from(["w1", "w2"])
chats = conversations(max_steps=3)


@st.composite
def in_flight(draw):
    """A few messages, which may end with calls that have no results yet."""
    chat = draw(chats)
    if draw(st.sampled_from([True, False, False])):
        chat += draw(exchange_of(draw(st.integers(900, 999))))[:1]
    return chat


def new_document(document_values, again=False, until=None):
    kind, number, value = document_values
    return NewDocument(kind, number, {"value": value}, until, again)


def normal(chat):
    """Messages as a store returns them: surrogate pairs are joined."""
    return [
        {key: _joined(value) for key, value in entry_to_provider_message(entry).items()} for entry in entries_of(chat)
    ]


def _joined(value):
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, list):
        return [_joined(item) for item in value]
    if isinstance(value, dict):
        return {key: _joined(item) for key, item in value.items()}
    return value


class StoreMachine(RuleBasedStateMachine):
    """The operations. A subclass for each backend names the store."""

    backend = ""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.runner = asyncio.Runner()
        self.store = BACKENDS[self.backend](self.folder)
        self.models = {}
        self.erased = set()
        self.keys = {}
        self.fold_number = 0
        self.documents = {}
        self.leases = {}
        self.fences = {}

    def teardown(self):
        self.runner.run(self.store.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def run(self, attempt):
        return self.runner.run(attempt)

    def expect_error(self, kind, attempt):
        with pytest.raises(kind):
            self.run(attempt)

    @rule(
        name=names,
        chat=in_flight(),
        recipient=st.sampled_from(["x", "y"]),
        stale=st.sampled_from([None, None, 0, -1]),
        key=st.sampled_from([None, "k1", "k2"]),
        document_values=st.none() | documents,
        leased=st.sampled_from([None, None, "held", "lost"]),
        release=st.booleans(),
    )
    def append(self, name, chat, recipient, stale, key, document_values, leased, release):
        model = self.models.get(name)
        expected = None if stale is None else (model.version if model else 0) + stale
        if not chat or (expected is not None and expected < 0) or (leased and name not in self.fences):
            return
        lease = self.fences.get(name) if leased else None
        is_active = name in self.leases and leased == "held"
        if lease and not is_active:
            lease = replace(lease, fence=lease.fence - (name in self.leases))
        attempt = self.store.append(
            name,
            entries_of(chat),
            recipient=model.recipient if model else recipient,
            expected_version=expected,
            idempotency_key=key,
            documents=[new_document(document_values)] if document_values else [],
            lease=lease,
            release=bool(lease and release),
        )
        taken = self.taken(name, document_values) if document_values else False
        known = self.keys.get((name, key)) if key and model else None
        if name in self.erased:
            self.expect_error(ConversationErased, attempt)
        elif known and known[0] == normal(chat):
            assert self.run(attempt) == known[1]
            self.record_release(name, released=is_active and release)
        elif known:
            self.expect_error(IdempotencyConflict, attempt)
        elif leased and not is_active:
            self.expect_error(LeaseLost, attempt)
        elif stale == -1:
            self.expect_error(VersionConflict, attempt)
        elif taken or (model and model.open_calls):
            both = taken and model and model.open_calls
            self.expect_error(
                (DocumentExists, BrokenConversation) if both else DocumentExists if taken else BrokenConversation,
                attempt,
            )
        else:
            self.record_append(name, chat, recipient, self.run(attempt))
            self.record_release(name, released=is_active and release)
            if document_values:
                self.check_stored_document(name, document_values)
            if key:
                self.keys[name, key] = (normal(chat), self.models[name].version)

    def record_release(self, name, *, released):
        if released:
            self.leases.pop(name, None)

    def record_append(self, name, chat, recipient, version):
        if name in self.models:
            self.models[name].version += 1
        else:
            self.models[name] = ModelConversation(recipient)
        self.models[name].messages += normal(chat)
        assert version == self.models[name].version

    @precondition(lambda self: self.models)
    @rule(name=names, whole=st.booleans())
    def bring_results(self, name, whole):
        model = self.models.get(name)
        if not model or not model.open_calls:
            return
        ids = model.open_calls if whole else model.open_calls[:1]
        results = [{"role": "tool", "tool_call_id": call_id, "content": f"result of {call_id}"} for call_id in ids]
        self.record_append(name, results, model.recipient, self.run(self.store.append(name, entries_of(results))))

    @precondition(lambda self: self.models)
    @rule(name=names, writers=st.integers(2, 5), chat=chats)
    def race(self, name, writers, chat):
        model = self.models.get(name)
        if not model or model.open_calls or not chat:
            return

        async def together():
            tries = (self.store.append(name, entries_of(chat), expected_version=model.version) for _ in range(writers))
            return await asyncio.gather(*tries, return_exceptions=True)

        results = self.run(together())
        assert sum(isinstance(result, VersionConflict) for result in results) == writers - 1
        self.record_append(name, chat, model.recipient, model.version + 1)

    @precondition(lambda self: self.models)
    @rule(name=names, start=positions, stop=positions, snap=st.booleans())
    def fold(self, name, start, stop, snap):
        model = self.models.get(name)
        if not model or not model.messages:
            return
        if snap:
            units = exchanges(model.messages)
            first, last = sorted((start % len(units), stop % len(units)))
            start, stop = units[first].start, units[last].stop
        self.fold_number += 1
        fold = Fold(f"f{self.fold_number}", start, stop, ({"role": "system", "content": f"{start}..{stop}"},), "why")
        inside = [other.id for other in model.active_folds if other.start < stop and start < other.stop]
        attempt = self.store.add_fold(name, fold, replacing=inside)
        if 0 <= start < stop <= len(model.messages) and model.may_fold(start, stop):
            self.run(attempt)
            model.folds.append(fold)
        else:
            self.expect_error(FoldConflict, attempt)

    @precondition(lambda self: any(model.folds for model in self.models.values()))
    @rule(name=names, position=positions)
    def undo(self, name, position):
        model = self.models.get(name)
        if not model or not model.folds:
            return
        fold = model.folds[position % len(model.folds)]
        if fold.id in model.sealed:
            self.expect_error(FoldConflict, self.store.undo_fold(name, fold.id))
        else:
            assert self.run(self.store.undo_fold(name, fold.id)).undone_at is not None
            model.undo(fold)

    @precondition(lambda self: self.models)
    @rule(name=names, position=positions, on=st.booleans())
    def pin(self, name, position, on):
        model = self.models.get(name)
        if not model:
            return
        attempt = self.store.pin(name, position) if on else self.store.unpin(name, position)
        if model.first <= position < len(model.messages):
            self.run(attempt)
            (model.pins.add if on else model.pins.discard)(position)
        else:
            self.expect_error(InvalidSetting, attempt)

    @precondition(lambda self: any(model.active_folds for model in self.models.values()))
    @rule(name=names, position=positions)
    def purge(self, name, position):
        model = self.models.get(name)
        if not model:
            return
        ends = [fold.stop for fold in model.active_folds] or [position]
        before = ends[position % len(ends)]
        if model.may_purge(before):
            assert self.run(self.store.purge(name, before=before)) == max(0, before - model.first)
            if before > model.first:
                model.sealed |= {fold.id for fold in model.active_folds if fold.stop <= before}
                model.pins -= set(range(before))
                model.first = before
        else:
            self.expect_error(FoldConflict, self.store.purge(name, before=before))

    @precondition(lambda self: self.models)
    @rule(name=names, position=positions, stale=st.sampled_from([0, 0, 0, 1]))
    def rewind(self, name, position, stale):
        model = self.models.get(name)
        if not model:
            return
        starts = [unit.start for unit in exchanges(model.messages)]
        attempt = self.store.rewind(name, position, expected_version=model.version + stale)
        if stale:
            self.expect_error(VersionConflict, attempt)
        elif position != 0 and (position < model.first or position not in {*starts, len(model.messages)}):
            self.expect_error(InvalidSetting, attempt)
        elif position == len(model.messages):
            assert self.run(attempt).version == model.version
        elif not model.may_rewind(position):
            self.expect_error(FoldConflict, attempt)
        else:
            assert self.run(attempt).version == model.version + 1
            (fold,) = [stored.fold for stored in self.run(self.store.folds(name))][-1:]
            model.rewind(fold)

    @precondition(lambda self: self.models)
    @rule(name=names, new=names, position=positions)
    def fork(self, name, new, position):
        model = self.models.get(name)
        if not model:
            return
        starts = [unit.start for unit in exchanges(model.messages)]
        at = min(position, len(model.messages))
        attempt = self.store.fork(name, new, at=at)
        if new in self.models:
            self.expect_error(VersionConflict, attempt)
        elif new in self.erased:
            self.expect_error(ConversationErased, attempt)
        elif at < model.first or at not in {*starts, len(model.messages)}:
            self.expect_error(InvalidSetting, attempt)
        else:
            assert self.run(attempt).length == at
            self.models[new] = model.fork(name, at)

    @precondition(lambda self: self.models)
    @rule(name=names, by_recipient=st.sampled_from([True, False, False, False]))
    def erase(self, name, by_recipient):
        model = self.models.get(name)
        if not model:
            return
        erased = {
            other_name
            for other_name, other in self.models.items()
            if by_recipient and other.recipient == model.recipient
        }
        erased.add(name)
        for _ in NAMES:
            erased |= {fork for fork, other in self.models.items() if other.origin in erased}
        receipt = self.run(
            self.store.erase(recipient=model.recipient) if by_recipient else self.store.erase(conversation=name)
        )
        assert receipt.conversations == len(erased)
        assert receipt.entries == sum(
            len(self.models[conversation].messages) - self.models[conversation].first for conversation in erased
        )
        for conversation in erased:
            del self.models[conversation]
            self.erased.add(conversation)
            self.leases.pop(conversation, None)
        self.documents = {
            key: document for key, document in self.documents.items() if document.conversation not in erased
        }

    @precondition(lambda self: self.models)
    @rule(name=names, status=st.sampled_from(ConversationStatus))
    def set_status(self, name, status):
        if name in self.models:
            self.run(self.store.set_status(name, status))
            self.models[name].status = status

    def taken(self, name, document_values):
        """Whether a different document has this kind and id."""
        kind, number, value = document_values
        known = self.documents.get((kind, number))
        return known is not None and (known.conversation != name or known.body != {"value": value})

    def check_stored_document(self, name, document_values):
        kind, number, value = document_values
        stored = self.run(self.store.document(kind, number))
        known = self.documents.get((kind, number))
        assert (stored.conversation, stored.body) == (name, {"value": value})
        others = [
            other.number
            for (other_kind, _), other in self.documents.items()
            if (other_kind, other.conversation) == (kind, name)
        ]
        assert stored.number == known.number if known else all(stored.number > other for other in others)
        self.documents[kind, number] = ModelDocument(name, {"value": value}, stored.number)

    @rule(name=names, document_values=documents, again=st.booleans(), late=st.sampled_from([False, False, True]))
    def put_document(self, name, document_values, again, late):
        known = self.documents.get(document_values[:2])
        attempt = self.store.put_document(name, new_document(document_values, again, LONG_AGO if late else None))
        if name not in self.models:
            self.expect_error(ConversationErased if name in self.erased else ConversationNotFound, attempt)
        elif known and known.conversation == name and again:
            assert self.run(attempt).number == known.number
        elif self.taken(name, document_values):
            self.expect_error(DocumentExists, attempt)
            return
        elif known:
            assert self.run(attempt).number == known.number
            return
        else:
            self.run(attempt)
        if name in self.models and late:
            self.documents.pop(document_values[:2], None)
            self.expect_error(DocumentNotFound, self.store.document(*document_values[:2]))
        elif name in self.models:
            self.check_stored_document(name, document_values)

    @rule(document_values=documents)
    def delete_document(self, document_values):
        assert self.run(self.store.delete_document(*document_values[:2])) == (
            self.documents.pop(document_values[:2], None) is not None
        )
        self.expect_error(DocumentNotFound, self.store.document(*document_values[:2]))

    @precondition(lambda self: self.models)
    @rule(name=names, kind=st.sampled_from(["k", "l"]), newest_first=st.booleans())
    def list_documents(self, name, kind, newest_first):
        if name not in self.models:
            return
        expected = [
            (document.number, key[1])
            for key, document in self.documents.items()
            if (document.conversation, key[0]) == (name, kind)
        ]
        items, cursor = [], None
        for _ in range(3):
            page = self.run(self.store.documents(name, kind, cursor=cursor, limit=1, newest_first=newest_first))
            items, cursor = [*items, *((document.number, document.id) for document in page.items)], page.cursor
            if cursor is None:
                break
        assert items == sorted(expected, reverse=newest_first)

    @rule(name=names, holder=holders)
    def acquire_lease(self, name, holder):
        known, attempt = self.leases.get(name), self.store.acquire_lease(name, holder, seconds=3600)
        if name in self.erased:
            self.expect_error(ConversationErased, attempt)
        elif known and known.holder != holder:
            self.expect_error(ConversationBusy, attempt)
        else:
            lease = self.run(attempt)
            assert lease.fence == known.fence if known else lease.fence > getattr(self.fences.get(name), "fence", 0)
            self.leases[name] = self.fences[name] = lease

    @precondition(lambda self: self.fences)
    @rule(name=names, renew=st.booleans())
    def end_lease(self, name, renew):
        lease = self.fences.get(name)
        if lease and renew and name in self.leases:
            assert self.run(self.store.renew_lease(lease, seconds=3600)).fence == lease.fence
        elif lease and renew:
            self.expect_error(
                ConversationErased if name in self.erased else LeaseLost, self.store.renew_lease(lease, seconds=9)
            )
        elif lease:
            self.run(self.store.release_lease(lease))
            self.leases.pop(name, None)

    @precondition(lambda self: self.models)
    @rule(name=names, requested=st.lists(positions, min_size=1, max_size=3, unique=True))
    def trim(self, name, requested):
        model = self.models.get(name)
        if not model:
            return
        inside = [
            requested_position
            for requested_position in requested
            if model.first <= requested_position < len(model.messages)
        ]
        changes = {
            requested_position: model.trimmed(requested_position)
            if requested_position in inside
            else {"role": "user", "content": ""}
            for requested_position in requested
        }
        changed = [
            requested_position
            for requested_position in inside
            if changes[requested_position] != model.messages[requested_position]
        ]
        attempt = self.store.trim(name, changes)
        if inside != requested or not all(map(model.may_trim, changed)):
            self.expect_error(InvalidSetting, attempt)
        else:
            assert self.run(attempt) == len(changed)
            model.messages = [changes.get(position, message) for position, message in enumerate(model.messages)]

    @precondition(lambda self: self.models)
    @rule(name=names, position=positions)
    def search(self, name, position):
        model = self.models.get(name)
        if not model or not model.messages:
            return
        for word in sorted(words(text_of(model.messages[position % len(model.messages)])))[:1]:
            hits = self.run(self.store.search(word, conversation=name, limit=1000)).items
            assert [hit.position for hit in hits] == model.positions_with(word)

    @rule()
    def vacuum(self):
        self.run(self.store.vacuum())

    @invariant()
    def every_conversation_equals_its_model(self):
        listed = self.run(self.store.list()).items
        assert {header.id for header in listed} == set(self.models)
        for header in listed:
            self.compare(header, self.models[header.id])

    def compare(self, header, model):
        assert (header.version, header.length, header.first) == (model.version, len(model.messages), model.first)
        assert model.lead in {None, header.lead}
        assert (header.recipient, header.status, header.open_calls) == (model.recipient, model.status, model.open_calls)
        whole, view = self.run(self.both(header.id))
        assert whole.messages == model.messages[model.first :]
        assert list(whole.positions) == list(range(model.first, len(model.messages)))
        assert [fold.id for fold in view.folds] == [fold.id for fold in model.active_folds]
        assert [message for _, message in view.shown()] == model.shown()
        assert view.pins == model.pins

    async def both(self, name):
        return await asyncio.gather(self.store.load(name), self.store.load(name, folded=True))

    @precondition(lambda self: self.models)
    @rule(name=names, count=st.integers(0, 12))
    def read_the_end(self, name, count):
        model = self.models.get(name)
        if not model:
            return
        by_turns = self.run(self.store.load(name, last_turns=count))
        by_messages = self.run(self.store.load(name, last_messages=count))
        assert by_turns.start == model.last_turns(count)
        assert by_messages.start == model.last_messages(count)
        assert by_turns.messages == model.messages[by_turns.start :]
        assert by_messages.messages == model.messages[by_messages.start :]


@pytest.mark.parametrize("backend", each_backend("memory", "postgres", "redis", "sqlite"))
def test_a_store_does_what_the_model_does(backend):
    machine = type(f"{backend.title()}Machine", (StoreMachine,), {"backend": backend})

    run_state_machine_as_test(machine, settings=settings(stateful_step_count=25))
