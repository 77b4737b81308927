"""A task in a store, so that another process can go on with it.

What happened is kept, not how things stand: the conversation under its own name, and beside it, under that name and
`/plan`, what happened to the plan. Both are written in the order of what happened, so what a crash leaves is a beginning
of it, and folding it again gives what was shown at that moment, byte for byte.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self, TypeAlias

from minutebook.errors import ConversationErased, ConversationNotFound, UnreadableInput
from minutebook.planning.setup import EVENTS, PLACED, PROMPT, PlanningNote, install_history, install_plan
from minutebook.planning.task_history import TaskHistory
from minutebook.record.entry import ConversationEntry, ConversationRecorded
from minutebook.record.message import MessageRole
from minutebook.record.transcript import Transcript
from minutebook.session.bus import InProcessEventBus
from minutebook.session.state import Session
from minutebook.store.base import ConversationStore
from minutebook.store.types import LoadedConversation
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import entry_from_json, entry_to_provider_message

Happening: TypeAlias = ConversationEntry | PlanningNote

_BESIDE: Final = "/plan"
"""What the name of a conversation has added to it for what happened to its plan."""


@dataclass(frozen=True, slots=True)
class _Count:
    """How much of what a session has recorded."""

    entries: int = 0
    notes: int = 0

    def after(self, happening: Happening) -> "_Count":
        if isinstance(happening, ConversationEntry):
            return _Count(self.entries + 1, self.notes)
        return _Count(self.entries + (happening.kind == PROMPT), self.notes + 1)


_NONE: Final = _Count()


class TaskJournal:
    """A session whose conversation and plan are kept in a store.

    `save` writes what has happened since it was last called; nothing else writes. The session must be one that records
    from its beginning. A rollback is nothing that happened, so it is not kept: take a summary back by `ExpandStep` instead.
    Erase a task by its recipient, which reaches both of its parts.
    """

    def __init__(
        self,
        store: ConversationStore,
        conversation: str,
        *,
        session: Session,
        recipient: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        install_plan(session)
        install_history(session)
        self.session = session
        self._store = store
        self._recipient = recipient if recipient is not None else conversation
        self._clock = clock
        self._names: dict[type, str] = {ConversationEntry: conversation, PlanningNote: conversation + _BESIDE}
        self._versions = dict.fromkeys(self._names.values(), 0)
        self._saved = _Count()

    @classmethod
    async def resume(
        cls,
        store: ConversationStore,
        conversation: str,
        *,
        bus: InProcessEventBus | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> Self:
        """The task as it was saved, in a new session.

        Raises:
            ConversationNotFound: there is none of that name.
            UnreadableInput: what is kept beside it is no plan.
        """
        said, beside = await _loaded(store, conversation), await _loaded(store, conversation + _BESIDE)
        found = said or beside
        if found is None:
            raise ConversationNotFound(conversation)
        session = Session(bus=bus, clock=clock)
        journal = cls(store, conversation, session=session, recipient=found.conversation.recipient, clock=clock)
        for part in (said, beside):
            if part is not None:
                journal._versions[part.conversation.id] = part.conversation.version
        _replay(session, said.entries if said else (), list(map(_note_of, beside.entries)) if beside else [])
        for happening in _happenings(session):
            journal._saved = journal._saved.after(happening)
        return journal

    async def save(self) -> None:
        """Write what has happened since, in its order.

        Raises:
            VersionConflict: somebody else has written to the task in the meantime.
        """
        batch: list[Happening] = []
        for happening in list(_happenings(self.session, self._saved)):
            if batch and type(batch[-1]) is not type(happening):
                await self._append(batch)
                batch = []
            batch.append(happening)
        if batch:
            await self._append(batch)

    def conversation(self, *, counter: TokenCounter | None = None) -> Transcript:
        """The conversation that was going on, for `evaluate` to go on with."""
        said: list[ConversationEntry] = []
        place: dict[str, Any] | None = None
        for happening in _happenings(self.session):
            if isinstance(happening, PlanningNote):
                place = json.loads(happening.data) if happening.kind == PLACED else place
                continue
            at = place["position"] if place else len(said)
            if at is not None:
                del said[at:]
                said.append(happening)
            place = None
        return Transcript(map(entry_to_provider_message, said), counter=counter)

    async def _append(self, batch: Sequence[Happening]) -> None:
        name = self._names[type(batch[0])]
        entries = [one if isinstance(one, ConversationEntry) else self._entry_of(one) for one in batch]
        self._versions[name] = await self._store.append(
            name, entries, expected_version=self._versions[name], recipient=self._recipient
        )
        for happening in batch:
            self._saved = self._saved.after(happening)

    def _entry_of(self, note: PlanningNote) -> ConversationEntry:
        content = json.dumps({"after": note.after, "kind": note.kind, "data": note.data}, separators=(",", ":"))
        return ConversationEntry(MessageRole.SYSTEM, content, self.session.session_id, note.after, self._clock())


def _happenings(session: Session, since: _Count = _NONE) -> Iterator[Happening]:
    """What happened after the first so many, in order. A prompt that was rendered again is a note and not an entry."""
    entries = iter(session.query(ConversationEntry).slice()[since.entries :])
    done = since.entries
    for note in session.query(PlanningNote).slice()[since.notes :]:
        while done < note.after:
            yield next(entries)
            done += 1
        yield note
        if note.kind == PROMPT:
            next(entries)
            done += 1
    yield from entries


def _replay(session: Session, said: Sequence[ConversationEntry], notes: Sequence[PlanningNote]) -> None:
    """Let everything happen again."""
    entries = deque(said)
    done = 0
    place: dict[str, Any] | None = None
    for note in notes:
        while done < note.after and entries:
            _record(session, entries.popleft(), place)
            done, place = done + 1, None
        if note.kind == PROMPT:
            session.dispatch(_recorded(session, entry_from_json(note.data), None, is_prompt=True))
            done += 1
        elif note.kind == PLACED:
            place = json.loads(note.data)
        else:
            session.dispatch(EVENTS.from_data(EVENTS.type_named(note.kind), [json.loads(note.data)])[0])
    for entry in entries:
        _record(session, entry, place)
        place = None


def _record(session: Session, entry: ConversationEntry, place: dict[str, Any] | None) -> None:
    history = session.query(TaskHistory).latest()
    at = 0 if history is None else history.reach.length
    place = place or {"position": at, "is_prompt": False}
    session.dispatch(_recorded(session, entry, place["position"], is_prompt=place["is_prompt"]))


def _recorded(session: Session, entry: ConversationEntry, at: int | None, *, is_prompt: bool) -> ConversationRecorded:
    return ConversationRecorded(entry, session.session_id, entry.created_at, at, is_prompt)


async def _loaded(store: ConversationStore, name: str) -> LoadedConversation | None:
    try:
        return await store.load(name)
    except ConversationErased:
        raise
    except ConversationNotFound:
        return None


def _note_of(entry: ConversationEntry) -> PlanningNote:
    try:
        return PlanningNote(**json.loads(entry.content or ""))
    except (TypeError, ValueError) as problem:
        raise UnreadableInput("the plan of a task", f"holds something else: {problem}") from problem
