"""Retention: sends the newest turns unchanged and older turns as text only.

At most `max_loaded_messages` messages are sent, rounded to the start of a turn. Retention writes no summaries. The record
keeps all messages; only `trim_old_turns` removes tool payloads from it.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from minutebook.conversation.config import Mode, RetentionConfig, Sent, sending_rule
from minutebook.conversation.trimming import TrimResult, messages_of_rows, trim_old_turns
from minutebook.errors import ConversationNotFound, InvalidSetting, StoreUnavailable
from minutebook.history.compose import ComposedManager, PassthroughManager
from minutebook.history.curation import Curated, NoteChain, tokens_of_view
from minutebook.history.incremental import (
    ContextualManager,
    IncrementalManager,
    IncrementalView,
    IncrementalWindow,
    PreservedMessages,
)
from minutebook.history.protocol import CurationContext, HistoryManager, SessionProtocol
from minutebook.history.tool_calls import ToolStripper
from minutebook.record.message import Message, is_user
from minutebook.record.transcript import Transcript
from minutebook.store.base import ConversationStore

_LOG: Final = logging.getLogger("minutebook.retention")


@dataclass(frozen=True, slots=True)
class PruningDecision:
    """How much retention pruned from one conversation, or would prune in shadow mode. Numbers only, for the log."""

    loaded: int
    """Messages before pruning."""
    preserved: int
    """Messages of the preserved turns."""
    pruned: int
    """Messages that are changed or left out."""
    tokens_before: int
    tokens_after: int
    mode: Mode


Report: TypeAlias = Callable[[PruningDecision], object]


@dataclass(frozen=True, slots=True)
class RetainedContext:
    """A conversation split into preserved and older turns, as it is sent to the model."""

    preserved: tuple[Message, ...]
    """The newest turns."""
    discarded: tuple[Message, ...]
    """The messages of older turns. They are still sent, but without tool details."""
    messages: list[Message]
    """All messages to send: those before the first turn, the older turns and the newest."""


@dataclass(slots=True, frozen=True)
class RecentTurns(IncrementalManager):
    """Keep at most `max_messages` newest messages, starting at a turn. The newest `min_turns` turns always stay."""

    max_messages: int
    """Maximum number of messages, not counting the leading system messages; 0 keeps only the newest turn."""
    min_turns: int = 1

    def new_view(self, source: Transcript, preserved: PreservedMessages, basis: Hashable) -> IncrementalView:  # noqa: ARG002 - it depends on messages alone
        reason = f"older than the last {self.max_messages} messages"
        return IncrementalWindow(source, preserved, self._start, _no_extra_indexes, reason)

    def fits(self, messages: Sequence[Message]) -> bool:
        source = Transcript.of(messages)
        return len(source) - source.leading_system_count <= self.max_messages

    def _start(self, source: Transcript) -> int:
        starts = source.turn_starts
        if len(source) - source.leading_system_count <= self.max_messages or not starts:
            return 0
        turns = self.min_turns if self.max_messages else 1
        return starts[first_turn_in_window(starts, len(source) - self.max_messages, turns)]


@dataclass(slots=True, frozen=True)
class RetentionManager(ContextualManager):
    """Applies a `RetentionConfig`. In shadow mode it reports what it would prune and returns all messages."""

    config: RetentionConfig
    report: Report | None = None
    """Called with every decision."""

    def curate(
        self,
        messages: Sequence[Message],
        *,
        session: SessionProtocol | None = None,
        context: CurationContext | None = None,
    ) -> Curated:
        source = Transcript.of(messages)
        view = self._pruned_view(source, session, context)
        if self.report is not None and (self.report is not log_decision or _LOG.isEnabledFor(logging.INFO)):
            self.report(self._decision(source, view))
        return view if self.config.mode == "on" else PassthroughManager().curate(source.coherent())

    def fits(self, messages: Sequence[Message]) -> bool:
        return self.config.mode != "on" or _pruning_manager(self.config).fits(messages)

    def decision(self, source: Transcript) -> PruningDecision:
        """How much is pruned from a record, or would be in shadow mode."""
        return self._decision(source, self._pruned_view(source, None, None))

    def _pruned_view(
        self, source: Transcript, session: SessionProtocol | None, context: CurationContext | None
    ) -> Curated:
        manager = _pruning_manager(self.config)
        with source.lock:
            fits = source.coherent() is source and manager.fits(source)
        if not fits:
            return manager.curate(source, session=session, context=context)
        # Fast path. One empty note chain per manager, as the composed manager would return.
        no_notes: tuple[NoteChain | None, ...] = (None,) * len(manager.managers)
        return Curated(source, PassthroughManager().curate(source).origins, no_notes)

    def _decision(self, source: Transcript, view: Curated) -> PruningDecision:
        unchanged = sum(
            1
            for message, origin in zip(view, view.origins, strict=True)
            if origin is not None and source[origin] is message
        )
        starts = source.turn_starts[-self.config.preserve_turns :] if self.config.preserve_turns else []
        return PruningDecision(
            loaded=len(source),
            preserved=len(source) - starts[0] if starts else 0,
            pruned=len(source) - unchanged,
            tokens_before=source.tokens,
            tokens_after=tokens_of_view(source, view),
            mode=self.config.mode,
        )


class RetentionPolicy:
    """Applies one retention configuration: loads, prunes and trims conversations. `report` replaces logging."""

    def __init__(self, config: RetentionConfig | None = None, *, report: Report | None = None) -> None:
        self.config = RetentionConfig() if config is None else config
        self._report = log_decision if report is None else report

    def manager(self) -> HistoryManager:
        """A manager that prunes by the configuration and reports each decision."""
        return retention_manager(self.config, self._report)

    def build_context(self, messages: Sequence[Message], preserve_turns: int | None = None) -> RetainedContext:
        """Split messages (oldest first) into the preserved and the older turns, and prune the older ones.

        A message with the key `tools_used`, such as a row of a database, becomes tool calls and results. Calls without a
        result and results without a call are repaired or left out, as in every view.

        Raises:
            InvalidSetting: `preserve_turns` is negative.
        """
        count = self.config.preserve_turns if preserve_turns is None else preserve_turns
        if count < 0:
            raise InvalidSetting("preserve_turns", preserve_turns, "a whole number, 0 or more")
        source = Transcript.of(Transcript.of(messages_of_rows(messages)).coherent().since(0))
        starts = source.turn_starts
        boundary = (
            starts[-count] if 0 < count <= len(starts) else (len(source) if not count else source.leading_system_count)
        )
        first_turn = starts[0] if starts else source.leading_system_count
        rule = sending_rule(self.config)
        stripper = None
        if rule.older is Sent.TEXT_ONLY:
            stripper = ToolStripper(count if rule.latest is Sent.WITH_TOOLS else 0)
        view = (stripper or PassthroughManager()).curate(source)
        indexed = [(origin or 0, message) for origin, message in zip(view.origins, view, strict=True)]
        return RetainedContext(
            preserved=tuple(message for index, message in indexed if index >= max(boundary, first_turn)),
            discarded=tuple(message for index, message in indexed if first_turn <= index < boundary),
            messages=list(view),
        )

    async def load_messages(
        self,
        store: ConversationStore | None,
        thread_id: str,
        limit: int | None = None,
        excluding: Collection[int] | int | None = None,
    ) -> list[Message]:
        """Load the newest messages of a thread, oldest first, from the start of a turn on.

        The preserved turns are always loaded, unless `limit` is 0. `excluding` are positions to leave out, such as that
        of the message being answered. The result is empty if the thread does not exist or, with a warning in the log,
        if the store is unavailable.

        Raises:
            InvalidSetting: the limit is negative.
        """
        max_messages = self.config.max_loaded_messages if limit is None else limit
        if max_messages < 0:
            raise InvalidSetting("limit", limit, "a whole number, 0 or more")
        excluded = {excluding} if isinstance(excluding, int) else set(excluding or ())
        if not max_messages:
            return []
        try:
            return await self._load(store, thread_id, max_messages, excluded)
        except ConversationNotFound:
            return []
        except OSError as error:  # includes StoreUnavailable and TimeoutError
            _LOG.warning("the history of %r could not be loaded; continuing without it: %s", thread_id, error)
            return []

    async def _load(
        self, store: ConversationStore | None, thread_id: str, max_messages: int, excluded: set[int]
    ) -> list[Message]:
        if store is None:
            raise StoreUnavailable("conversation store", "no store is configured")
        turns = max(1, self.config.preserve_turns)
        loaded = await store.load(thread_id, last_messages=max_messages + len(excluded))
        if loaded.start and sum(map(is_user, loaded.messages)) <= turns + len(excluded):
            loaded = await store.load(thread_id, last_turns=turns + len(excluded))
        leading_count = loaded.conversation.lead
        included = [
            (position, message)
            for position, message in zip(loaded.positions, loaded.messages, strict=True)
            if position not in excluded
        ]
        leading = [message for position, message in included if position < leading_count]
        has_purged = loaded.conversation.first > 0
        if loaded.start and leading_count and not has_purged:
            leading = (await store.load(thread_id, since=0, limit=leading_count)).messages
        messages = [message for position, message in included if position >= leading_count]
        turn_starts = [index for index, message in enumerate(messages) if is_user(message)]
        if turn_starts and (loaded.start > leading_count or len(messages) > max_messages):
            start = max(0, len(messages) - max_messages)
            messages = messages[turn_starts[first_turn_in_window(turn_starts, start, turns)] :]
        return [*leading, *messages]

    async def trim_old_turns(self, store: ConversationStore, conversation: str) -> TrimResult:
        """Trim the turns that are no longer preserved, as the configuration says. Each turn is trimmed once."""
        return await trim_old_turns(store, conversation, self.config)


def retention_manager(config: RetentionConfig, report: Report | None = None) -> HistoryManager:
    """The manager that prunes by a configuration: a passthrough if its mode is `off`."""
    return PassthroughManager() if config.mode == "off" else RetentionManager(config, report)


@lru_cache(maxsize=64)
def _pruning_manager(config: RetentionConfig) -> ComposedManager:
    """The managers that prune in mode `on`. The turn being answered always stays unchanged."""
    rule = sending_rule(config, mode="on")
    turns = max(1, config.preserve_turns)
    window = RecentTurns(config.max_loaded_messages, turns)
    if rule.older is Sent.WITH_TOOLS:
        return ComposedManager((window,))
    return ComposedManager((window, ToolStripper(turns if rule.latest is Sent.WITH_TOOLS else 1)))


def first_turn_in_window(turn_starts: Sequence[int], start: int, turns: int) -> int:
    """Index in `turn_starts` of the first turn at or after `start`; an earlier one if fewer than `turns` would stay."""
    return max(0, min(bisect_left(turn_starts, start), len(turn_starts) - max(1, turns)))


def log_decision(decision: PruningDecision) -> None:
    """Log a decision; the log record has its numbers as the attribute `pruning`."""
    numbers = asdict(decision)
    _LOG.info("pruned %s", " ".join(f"{name}={value}" for name, value in numbers.items()), extra={"pruning": numbers})


def _no_extra_indexes(source: Transcript, start: int) -> set[int]:  # noqa: ARG001 - IncrementalWindow's signature
    return set()
