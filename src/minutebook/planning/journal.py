"""A task in a store, so that another process can resume it.

The journal stores events, not state: the entries of the conversation under its id, and the planning events under the same
id with the suffix `/plan`. Both are written in the order in which they happened, so a crash leaves a prefix of the task,
and replaying it gives exactly the prompt and the view of that moment.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self, TypeAlias

from minutebook.errors import ConversationErased, ConversationNotFound, UnreadableInput
from minutebook.planning.setup import EVENTS, POSITION, PROMPT, PlanningEvent, install_history, install_plan
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

JournalItem: TypeAlias = ConversationEntry | PlanningEvent

_PLAN_SUFFIX: Final = "/plan"


@dataclass(frozen=True, slots=True)
class _JournalPosition:
    """A position in a session's items: the number of entries and of planning events before it."""

    entries: int = 0
    events: int = 0

    def after(self, item: JournalItem) -> "_JournalPosition":
        if isinstance(item, ConversationEntry):
            return _JournalPosition(self.entries + 1, self.events)
        return _JournalPosition(self.entries + (item.kind == PROMPT), self.events + 1)


_START: Final = _JournalPosition()


class TaskJournal:
    """Stores the conversation and the plan of a session.

    Only `save` writes. Create the journal before the session records anything. A rollback of the session is not stored:
    dispatch `ExpandStep` to undo a summary. Erase a task by its recipient, which erases both of its conversations.
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
        self._conversation_ids: dict[type, str] = {
            ConversationEntry: conversation,
            PlanningEvent: conversation + _PLAN_SUFFIX,
        }
        self._versions = dict.fromkeys(self._conversation_ids.values(), 0)
        self._saved = _START

    @classmethod
    async def resume(
        cls,
        store: ConversationStore,
        conversation: str,
        *,
        bus: InProcessEventBus | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> Self:
        """Load a task into a new session.

        Raises:
            ConversationNotFound: the store has no such task.
            UnreadableInput: the entries under the suffix `/plan` are not planning events.
        """
        recorded, plan = await _load(store, conversation), await _load(store, conversation + _PLAN_SUFFIX)
        loaded = recorded or plan
        if loaded is None:
            raise ConversationNotFound(conversation)
        session = Session(bus=bus, clock=clock)
        journal = cls(store, conversation, session=session, recipient=loaded.conversation.recipient, clock=clock)
        for part in (recorded, plan):
            if part is not None:
                journal._versions[part.conversation.id] = part.conversation.version
        _replay(session, recorded.entries if recorded else (), list(map(_event_of, plan.entries)) if plan else [])
        for item in _items(session):
            journal._saved = journal._saved.after(item)
        return journal

    async def save(self) -> None:
        """Write the entries and events since the last call, in order.

        Raises:
            VersionConflict: another process has written to the task since.
        """
        batch: list[JournalItem] = []
        for item in list(_items(self.session, self._saved)):
            if batch and type(batch[-1]) is not type(item):
                await self._append(batch)
                batch = []
            batch.append(item)
        if batch:
            await self._append(batch)

    def conversation(self, *, counter: TokenCounter | None = None) -> Transcript:
        """The current conversation, for `evaluate` to continue."""
        entries: list[ConversationEntry] = []
        next_position: dict[str, Any] | None = None
        for item in _items(self.session):
            if isinstance(item, PlanningEvent):
                next_position = json.loads(item.data) if item.kind == POSITION else next_position
                continue
            position = next_position["position"] if next_position else len(entries)
            if position is not None:
                del entries[position:]
                entries.append(item)
            next_position = None
        return Transcript(map(entry_to_provider_message, entries), counter=counter)

    async def _append(self, batch: Sequence[JournalItem]) -> None:
        conversation = self._conversation_ids[type(batch[0])]
        entries = [item if isinstance(item, ConversationEntry) else self._entry_of(item) for item in batch]
        self._versions[conversation] = await self._store.append(
            conversation, entries, expected_version=self._versions[conversation], recipient=self._recipient
        )
        for item in batch:
            self._saved = self._saved.after(item)

    def _entry_of(self, event: PlanningEvent) -> ConversationEntry:
        content = json.dumps({"after": event.after, "kind": event.kind, "data": event.data}, separators=(",", ":"))
        return ConversationEntry(MessageRole.SYSTEM, content, self.session.session_id, event.after, self._clock())


def _items(session: Session, since: _JournalPosition = _START) -> Iterator[JournalItem]:
    """The items after a position, in order. A prompt that was rendered again is an event, and its entry is skipped."""
    entries = iter(session.query(ConversationEntry).slice()[since.entries :])
    entry_count = since.entries
    for event in session.query(PlanningEvent).slice()[since.events :]:
        while entry_count < event.after:
            yield next(entries)
            entry_count += 1
        yield event
        if event.kind == PROMPT:
            next(entries)
            entry_count += 1
    yield from entries


def _replay(session: Session, recorded: Sequence[ConversationEntry], events: Sequence[PlanningEvent]) -> None:
    """Dispatch the entries and events to a new session, in their original order."""
    entries = deque(recorded)
    entry_count = 0
    next_position: dict[str, Any] | None = None
    for event in events:
        while entry_count < event.after and entries:
            _record(session, entries.popleft(), next_position)
            entry_count, next_position = entry_count + 1, None
        if event.kind == PROMPT:
            session.dispatch(_recorded_event(session, entry_from_json(event.data), None, is_prompt=True))
            entry_count += 1
        elif event.kind == POSITION:
            next_position = json.loads(event.data)
        else:
            session.dispatch(EVENTS.from_data(EVENTS.type_named(event.kind), [json.loads(event.data)])[0])
    for entry in entries:
        _record(session, entry, next_position)
        next_position = None


def _record(session: Session, entry: ConversationEntry, position: dict[str, Any] | None) -> None:
    """Record an entry at the position of a `POSITION` event, or at the end of the conversation."""
    history = session.query(TaskHistory).latest()
    end = 0 if history is None else history.extent.length
    position = position or {"position": end, "is_prompt": False}
    session.dispatch(_recorded_event(session, entry, position["position"], is_prompt=position["is_prompt"]))


def _recorded_event(
    session: Session, entry: ConversationEntry, position: int | None, *, is_prompt: bool
) -> ConversationRecorded:
    return ConversationRecorded(entry, session.session_id, entry.created_at, position, is_prompt)


async def _load(store: ConversationStore, conversation: str) -> LoadedConversation | None:
    try:
        return await store.load(conversation)
    except ConversationErased:
        raise
    except ConversationNotFound:
        return None


def _event_of(entry: ConversationEntry) -> PlanningEvent:
    try:
        return PlanningEvent(**json.loads(entry.content or ""))
    except (TypeError, ValueError) as error:
        raise UnreadableInput("the plan of a task", f"an entry is not a planning event: {error}") from error
