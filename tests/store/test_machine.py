"""Any order of operations, on every store, beside a model: nothing lost, resurrected, split or reordered."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from minutebook import BrokenConversation, Fold, exchanges
from minutebook.errors import (
    ConversationErased,
    FoldConflict,
    IdempotencyConflict,
    InvalidSetting,
    VersionConflict,
)
from minutebook.store.types import ConversationStatus
from minutebook.testing.contract_parts import entries_of
from minutebook.wire.chat import entry_to_provider_message
from tests.store.backends import BACKENDS
from tests.store.model import Talk
from tests.strategies import conversations
from tests.strategies import exchanges as exchange_of

MEMORY = Path("/dev/shm")
"""Where there is such a folder, nothing waits for a disk: what survives a crash is tested elsewhere."""
NAMES = ("a", "b", "c", "d")
names = st.sampled_from(NAMES)
places = st.integers(0, 40)
chats = conversations(max_steps=3)


@st.composite
def in_flight(draw):
    """A few messages, which may end with calls that still wait for results."""
    chat = draw(chats)
    if draw(st.sampled_from([True, False, False])):
        chat += draw(exchange_of(draw(st.integers(900, 999))))[:1]
    return chat


def normal(chat):
    """Messages as a store gives them back: JSON joins the surrogates that make a pair."""
    return [
        {key: _joined(value) for key, value in entry_to_provider_message(entry).items()} for entry in entries_of(chat)
    ]


def _joined(value):
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, list):
        return [_joined(one) for one in value]
    if isinstance(value, dict):
        return {key: _joined(one) for key, one in value.items()}
    return value


class StoreMachine(RuleBasedStateMachine):
    """The rules; a subclass for each backend says which store they are tried on."""

    backend = ""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.runner = asyncio.Runner()
        self.store = BACKENDS[self.backend](self.folder)
        self.talks = {}
        self.erased = set()
        self.keys = {}
        self.fold_number = 0

    def teardown(self):
        self.runner.run(self.store.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def do(self, attempt):
        return self.runner.run(attempt)

    def refused(self, kind, attempt):
        with pytest.raises(kind):
            self.do(attempt)

    @rule(
        name=names,
        chat=in_flight(),
        recipient=st.sampled_from(["x", "y"]),
        stale=st.sampled_from([None, None, 0, -1]),
        key=st.sampled_from([None, "k1", "k2"]),
    )
    def append(self, name, chat, recipient, stale, key):
        talk = self.talks.get(name)
        expected = None if stale is None else (talk.version if talk else 0) + stale
        if not chat or (expected is not None and expected < 0):
            return
        attempt = self.store.append(
            name,
            entries_of(chat),
            recipient=talk.recipient if talk else recipient,
            expected_version=expected,
            idempotency_key=key,
        )
        known = self.keys.get((name, key)) if key and talk else None
        if name in self.erased:
            self.refused(ConversationErased, attempt)
        elif known and known[0] == normal(chat):
            assert self.do(attempt) == known[1]
        elif known:
            self.refused(IdempotencyConflict, attempt)
        elif stale == -1:
            self.refused(VersionConflict, attempt)
        elif talk and talk.open_calls:
            self.refused(BrokenConversation, attempt)
        else:
            self.appended(name, chat, recipient, self.do(attempt))
            if key:
                self.keys[name, key] = (normal(chat), self.talks[name].version)

    def appended(self, name, chat, recipient, version):
        if name in self.talks:
            self.talks[name].version += 1
        else:
            self.talks[name] = Talk(recipient)
        self.talks[name].messages += normal(chat)
        assert version == self.talks[name].version

    @precondition(lambda self: self.talks)
    @rule(name=names, whole=st.booleans())
    def bring_results(self, name, whole):
        talk = self.talks.get(name)
        if not talk or not talk.open_calls:
            return
        ids = talk.open_calls if whole else talk.open_calls[:1]
        results = [{"role": "tool", "tool_call_id": one, "content": f"result of {one}"} for one in ids]
        self.appended(name, results, talk.recipient, self.do(self.store.append(name, entries_of(results))))

    @precondition(lambda self: self.talks)
    @rule(name=names, writers=st.integers(2, 5), chat=chats)
    def race(self, name, writers, chat):
        talk = self.talks.get(name)
        if not talk or talk.open_calls or not chat:
            return

        async def together():
            tries = (self.store.append(name, entries_of(chat), expected_version=talk.version) for _ in range(writers))
            return await asyncio.gather(*tries, return_exceptions=True)

        answers = self.do(together())
        assert sum(isinstance(answer, VersionConflict) for answer in answers) == writers - 1
        self.appended(name, chat, talk.recipient, talk.version + 1)

    @precondition(lambda self: self.talks)
    @rule(name=names, start=places, stop=places, snap=st.booleans())
    def fold(self, name, start, stop, snap):
        talk = self.talks.get(name)
        if not talk or not talk.messages:
            return
        if snap:
            units = exchanges(talk.messages)
            first, last = sorted((start % len(units), stop % len(units)))
            start, stop = units[first].start, units[last].stop
        self.fold_number += 1
        fold = Fold(f"f{self.fold_number}", start, stop, ({"role": "system", "content": f"{start}..{stop}"},), "why")
        inside = [other.id for other in talk.standing if other.start < stop and start < other.stop]
        attempt = self.store.add_fold(name, fold, replacing=inside)
        if 0 <= start < stop <= len(talk.messages) and talk.may_fold(start, stop):
            self.do(attempt)
            talk.folds.append(fold)
        else:
            self.refused(FoldConflict, attempt)

    @precondition(lambda self: any(talk.folds for talk in self.talks.values()))
    @rule(name=names, place=places)
    def undo(self, name, place):
        talk = self.talks.get(name)
        if not talk or not talk.folds:
            return
        fold = talk.folds[place % len(talk.folds)]
        if fold.id in talk.sealed:
            self.refused(FoldConflict, self.store.undo_fold(name, fold.id))
        else:
            assert self.do(self.store.undo_fold(name, fold.id)).undone_at is not None
            talk.undone.add(fold.id)

    @precondition(lambda self: self.talks)
    @rule(name=names, place=places, on=st.booleans())
    def pin(self, name, place, on):
        talk = self.talks.get(name)
        if not talk:
            return
        attempt = self.store.pin(name, place) if on else self.store.unpin(name, place)
        if talk.first <= place < len(talk.messages):
            self.do(attempt)
            (talk.pins.add if on else talk.pins.discard)(place)
        else:
            self.refused(InvalidSetting, attempt)

    @precondition(lambda self: any(talk.standing for talk in self.talks.values()))
    @rule(name=names, place=places)
    def purge(self, name, place):
        talk = self.talks.get(name)
        if not talk:
            return
        ends = [fold.stop for fold in talk.standing] or [place]
        before = ends[place % len(ends)]
        if talk.may_purge(before):
            assert self.do(self.store.purge(name, before=before)) == max(0, before - talk.first)
            if before > talk.first:
                talk.sealed |= {fold.id for fold in talk.standing if fold.stop <= before}
                talk.pins -= set(range(before))
                talk.first = before
        else:
            self.refused(FoldConflict, self.store.purge(name, before=before))

    @precondition(lambda self: self.talks)
    @rule(name=names, new=names, place=places)
    def fork(self, name, new, place):
        talk = self.talks.get(name)
        if not talk:
            return
        starts = [unit.start for unit in exchanges(talk.messages)]
        at = min(place, len(talk.messages))
        attempt = self.store.fork(name, new, at=at)
        if new in self.talks:
            self.refused(VersionConflict, attempt)
        elif new in self.erased:
            self.refused(ConversationErased, attempt)
        elif at < talk.first or at not in {*starts, len(talk.messages)}:
            self.refused(InvalidSetting, attempt)
        else:
            assert self.do(attempt).length == at
            self.talks[new] = talk.fork(name, at)

    @precondition(lambda self: self.talks)
    @rule(name=names, by_recipient=st.sampled_from([True, False, False, False]))
    def erase(self, name, by_recipient):
        talk = self.talks.get(name)
        if not talk:
            return
        reached = {one for one, other in self.talks.items() if by_recipient and other.recipient == talk.recipient}
        reached.add(name)
        for _ in NAMES:
            reached |= {one for one, other in self.talks.items() if other.origin in reached}
        receipt = self.do(
            self.store.erase(recipient=talk.recipient) if by_recipient else self.store.erase(conversation=name)
        )
        assert receipt.conversations == len(reached)
        assert receipt.entries == sum(len(self.talks[one].messages) - self.talks[one].first for one in reached)
        for one in reached:
            del self.talks[one]
            self.erased.add(one)

    @precondition(lambda self: self.talks)
    @rule(name=names, status=st.sampled_from(ConversationStatus))
    def set_status(self, name, status):
        if name in self.talks:
            self.do(self.store.set_status(name, status))
            self.talks[name].status = status

    @rule()
    def vacuum(self):
        self.do(self.store.vacuum())

    @invariant()
    def every_conversation_is_what_the_model_says(self):
        listed = self.do(self.store.list()).items
        assert {header.id for header in listed} == set(self.talks)
        for header in listed:
            self.compare(header, self.talks[header.id])

    def compare(self, header, talk):
        assert (header.version, header.length, header.first) == (talk.version, len(talk.messages), talk.first)
        assert (header.recipient, header.status, header.open_calls) == (talk.recipient, talk.status, talk.open_calls)
        whole, view = self.do(self.both(header.id))
        assert whole.messages == talk.messages[talk.first :]
        assert list(whole.positions) == list(range(talk.first, len(talk.messages)))
        assert [fold.id for fold in view.folds] == [fold.id for fold in talk.standing]
        assert [message for _, message in view.shown()] == talk.shown()
        assert view.pins == talk.pins

    async def both(self, name):
        return await asyncio.gather(self.store.load(name), self.store.load(name, folded=True))

    @precondition(lambda self: self.talks)
    @rule(name=names, count=st.integers(0, 12))
    def read_the_end(self, name, count):
        talk = self.talks.get(name)
        if not talk:
            return
        by_turns = self.do(self.store.load(name, last_turns=count))
        by_messages = self.do(self.store.load(name, last_messages=count))
        assert by_turns.start == talk.last_turns(count)
        assert by_messages.start == talk.last_messages(count)
        assert by_turns.messages == talk.messages[by_turns.start :]
        assert by_messages.messages == talk.messages[by_messages.start :]


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_store_does_what_the_model_does(backend):
    machine = type(f"{backend.title()}Machine", (StoreMachine,), {"backend": backend})

    run_state_machine_as_test(machine, settings=settings(stateful_step_count=25))
