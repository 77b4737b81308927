"""Any order of operations, on every store, beside a model: nothing lost, resurrected, split or reordered."""

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
from minutebook.store.search import words
from minutebook.store.types import ConversationStatus, NewDocument
from minutebook.testing.contract.samples import entries_of
from minutebook.wire.chat import entry_to_provider_message
from tests.store.backends import BACKENDS, each_backend
from tests.store.leaving import LONG_AGO
from tests.store.model import Paper, Talk
from tests.strategies import conversations
from tests.strategies import exchanges as exchange_of

MEMORY = Path("/dev/shm")
"""Where there is such a folder, nothing waits for a disk: what survives a crash is tested elsewhere."""
NAMES = ("a", "b", "c", "d")
names = st.sampled_from(NAMES)
places = st.integers(0, 40)
papers = st.tuples(st.sampled_from(["k", "l"]), st.sampled_from(["1", "2", "3"]), st.integers(0, 2))
holders = st.sampled_from(["w1", "w2"])
chats = conversations(max_steps=3)


@st.composite
def in_flight(draw):
    """A few messages, which may end with calls that still wait for results."""
    chat = draw(chats)
    if draw(st.sampled_from([True, False, False])):
        chat += draw(exchange_of(draw(st.integers(900, 999))))[:1]
    return chat


def new_paper(paper, again=False, until=None):
    kind, number, value = paper
    return NewDocument(kind, number, {"value": value}, until, again)


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
        self.papers = {}
        self.leases = {}
        self.fences = {}

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
        paper=st.none() | papers,
        leased=st.sampled_from([None, None, "held", "lost"]),
        release=st.booleans(),
    )
    def append(self, name, chat, recipient, stale, key, paper, leased, release):
        talk = self.talks.get(name)
        expected = None if stale is None else (talk.version if talk else 0) + stale
        if not chat or (expected is not None and expected < 0) or (leased and name not in self.fences):
            return
        lease = self.fences.get(name) if leased else None
        stands = name in self.leases and leased == "held"
        if lease and not stands:
            lease = replace(lease, fence=lease.fence - (name in self.leases))
        attempt = self.store.append(
            name,
            entries_of(chat),
            recipient=talk.recipient if talk else recipient,
            expected_version=expected,
            idempotency_key=key,
            documents=[new_paper(paper)] if paper else [],
            lease=lease,
            release=bool(lease and release),
        )
        taken = self.taken(name, paper) if paper else False
        known = self.keys.get((name, key)) if key and talk else None
        if name in self.erased:
            self.refused(ConversationErased, attempt)
        elif known and known[0] == normal(chat):
            assert self.do(attempt) == known[1]
            self.released(name, given=stands and release)
        elif known:
            self.refused(IdempotencyConflict, attempt)
        elif leased and not stands:
            self.refused(LeaseLost, attempt)
        elif stale == -1:
            self.refused(VersionConflict, attempt)
        elif taken or (talk and talk.open_calls):
            both = taken and talk and talk.open_calls
            self.refused(
                (DocumentExists, BrokenConversation) if both else DocumentExists if taken else BrokenConversation,
                attempt,
            )
        else:
            self.appended(name, chat, recipient, self.do(attempt))
            self.released(name, given=stands and release)
            if paper:
                self.read_paper(name, paper)
            if key:
                self.keys[name, key] = (normal(chat), self.talks[name].version)

    def released(self, name, *, given):
        if given:
            self.leases.pop(name, None)

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
            self.leases.pop(one, None)
        self.papers = {place: paper for place, paper in self.papers.items() if paper.conversation not in reached}

    @precondition(lambda self: self.talks)
    @rule(name=names, status=st.sampled_from(ConversationStatus))
    def set_status(self, name, status):
        if name in self.talks:
            self.do(self.store.set_status(name, status))
            self.talks[name].status = status

    def taken(self, name, paper):
        """Whether a document may not be put there."""
        kind, number, value = paper
        known = self.papers.get((kind, number))
        return known is not None and (known.conversation != name or known.body != {"value": value})

    def read_paper(self, name, paper):
        kind, number, value = paper
        found = self.do(self.store.document(kind, number))
        known = self.papers.get((kind, number))
        assert (found.conversation, found.body) == (name, {"value": value})
        others = [one.number for (its, _), one in self.papers.items() if (its, one.conversation) == (kind, name)]
        assert found.number == known.number if known else all(found.number > other for other in others)
        self.papers[kind, number] = Paper(name, {"value": value}, found.number)

    @rule(name=names, paper=papers, again=st.booleans(), late=st.sampled_from([False, False, True]))
    def put_document(self, name, paper, again, late):
        known = self.papers.get(paper[:2])
        attempt = self.store.put_document(name, new_paper(paper, again, LONG_AGO if late else None))
        if name not in self.talks:
            self.refused(ConversationErased if name in self.erased else ConversationNotFound, attempt)
        elif known and known.conversation == name and again:
            assert self.do(attempt).number == known.number
        elif self.taken(name, paper):
            self.refused(DocumentExists, attempt)
            return
        elif known:
            assert self.do(attempt).number == known.number
            return
        else:
            self.do(attempt)
        if name in self.talks and late:
            self.papers.pop(paper[:2], None)
            self.refused(DocumentNotFound, self.store.document(*paper[:2]))
        elif name in self.talks:
            self.read_paper(name, paper)

    @rule(paper=papers)
    def delete_document(self, paper):
        assert self.do(self.store.delete_document(*paper[:2])) == (self.papers.pop(paper[:2], None) is not None)
        self.refused(DocumentNotFound, self.store.document(*paper[:2]))

    @precondition(lambda self: self.talks)
    @rule(name=names, kind=st.sampled_from(["k", "l"]), newest_first=st.booleans())
    def list_documents(self, name, kind, newest_first):
        if name not in self.talks:
            return
        mine = [
            (one.number, place[1]) for place, one in self.papers.items() if (one.conversation, place[0]) == (name, kind)
        ]
        found, cursor = [], None
        for _ in range(3):
            page = self.do(self.store.documents(name, kind, cursor=cursor, limit=1, newest_first=newest_first))
            found, cursor = [*found, *((one.number, one.id) for one in page.items)], page.cursor
            if cursor is None:
                break
        assert found == sorted(mine, reverse=newest_first)

    @rule(name=names, holder=holders)
    def acquire_lease(self, name, holder):
        known, attempt = self.leases.get(name), self.store.acquire_lease(name, holder, seconds=3600)
        if name in self.erased:
            self.refused(ConversationErased, attempt)
        elif known and known.holder != holder:
            self.refused(ConversationBusy, attempt)
        else:
            made = self.do(attempt)
            assert made.fence == known.fence if known else made.fence > getattr(self.fences.get(name), "fence", 0)
            self.leases[name] = self.fences[name] = made

    @precondition(lambda self: self.fences)
    @rule(name=names, renew=st.booleans())
    def end_lease(self, name, renew):
        lease = self.fences.get(name)
        if lease and renew and name in self.leases:
            assert self.do(self.store.renew_lease(lease, seconds=3600)).fence == lease.fence
        elif lease and renew:
            self.refused(
                ConversationErased if name in self.erased else LeaseLost, self.store.renew_lease(lease, seconds=9)
            )
        elif lease:
            self.do(self.store.release_lease(lease))
            self.leases.pop(name, None)

    @precondition(lambda self: self.talks)
    @rule(name=names, spots=st.lists(places, min_size=1, max_size=3, unique=True))
    def trim(self, name, spots):
        talk = self.talks.get(name)
        if not talk:
            return
        inside = [spot for spot in spots if talk.first <= spot < len(talk.messages)]
        changes = {spot: talk.trimmed(spot) if spot in inside else {"role": "user", "content": ""} for spot in spots}
        changed = [spot for spot in inside if changes[spot] != talk.messages[spot]]
        attempt = self.store.trim(name, changes)
        if inside != spots or not all(map(talk.may_trim, changed)):
            self.refused(InvalidSetting, attempt)
        else:
            assert self.do(attempt) == len(changed)
            talk.messages = [changes.get(place, message) for place, message in enumerate(talk.messages)]

    @precondition(lambda self: self.talks)
    @rule(name=names, place=places)
    def search(self, name, place):
        talk = self.talks.get(name)
        if not talk or not talk.messages:
            return
        for word in sorted(words(text_of(talk.messages[place % len(talk.messages)])))[:1]:
            hits = self.do(self.store.search(word, conversation=name, limit=1000)).items
            assert [hit.position for hit in hits] == talk.found(word)

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


@pytest.mark.parametrize("backend", each_backend("memory", "postgres", "redis", "sqlite"))
def test_a_store_does_what_the_model_does(backend):
    machine = type(f"{backend.title()}Machine", (StoreMachine,), {"backend": backend})

    run_state_machine_as_test(machine, settings=settings(stateful_step_count=25))
