"""Retention: sends the newest turns unchanged, older turns as text only, and at most a number of visible messages.

Retention writes no summaries. The record keeps all messages; only `trim_old_turns` removes tool payloads from it.

The boundaries move in steps. If they moved with every turn, they would change the start of every request, and the provider's
prompt cache would be lost each time. They are computed from left to right, once per turn, so messages that are appended later
never change an earlier step.
"""

import logging
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import asdict, dataclass, field
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
    last_exchange,
)
from minutebook.history.protocol import CurationContext, HistoryManager, SessionProtocol
from minutebook.history.tool_calls import ToolStripper
from minutebook.record.message import Message, call_ids, is_user, role_of, text_of
from minutebook.record.transcript import Transcript
from minutebook.store.base import ConversationStore

_LOG: Final = logging.getLogger("minutebook.retention")
_TARGET_SHARE: Final = 0.4
"""Share of the maximum number of messages that remains after a step, except the first. Measured: 30 turns of plain chat then
cost 0.8 of the full history; with one turn per step they cost 3 times as much."""
_TOOLS_FACTOR: Final = 3
"""The maximum number of turns with tools is at least this many times the minimum. A step writes the preserved turns to the
cache again, which pays only if it strips more turns than these."""


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
"""Called with every decision, for example to log it."""


@dataclass(frozen=True, slots=True)
class RetainedContext:
    """A conversation split into preserved and older turns, as it is sent to the model."""

    preserved: tuple[Message, ...]
    """The newest turns."""
    discarded: tuple[Message, ...]
    """The messages of older turns. They are still sent, but without tool details."""
    messages: list[Message]
    """All messages to send: those before the first turn, the older turns and the newest."""


def is_visible(message: Message) -> bool:
    """Whether users see the message: their own ones, and answers with text."""
    return is_user(message) or (role_of(message) == "assistant" and bool(text_of(message)))


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The limits of the window."""

    messages: int
    """Maximum visible messages of finished turns; 0 keeps only the open turn."""
    turns: int
    """Minimum finished turns that are sent."""
    turns_with_tools: int
    """Minimum finished turns that are sent with their tool calls."""

    @property
    def max_turns_with_tools(self) -> int:
        """Maximum finished turns that are sent with their tool calls.

        As many as the limit of messages allows, so that one step removes tools and leaves out the oldest messages. A
        separate step loses the cache once more, and then a chat of 8 turns costs 1.3 times the full history.
        """
        return max(self.turns_with_tools * _TOOLS_FACTOR, self.messages // 2) if self.turns_with_tools else 0


@dataclass(slots=True)
class RetentionBoundaries:
    """The first turn that is sent, and the first that is sent with tools. They are computed again for each new turn."""

    limits: RetentionLimits
    first_turn: int = 0
    first_turn_with_tools: int = 0
    _counts: list[int] = field(default_factory=list)
    """For each turn, the number of visible messages before it."""

    @classmethod
    def of(cls, source: Transcript, limits: RetentionLimits) -> "RetentionBoundaries":
        """The boundaries in a transcript. They are cached with it, so a call processes only new turns."""
        boundaries = source.cached_value((cls.__name__, limits), lambda: cls(limits))
        boundaries.advance(source)
        return boundaries

    def advance(self, source: Transcript) -> None:
        """Process the turns that were opened since the last call."""
        starts, limits = source.turn_starts, self.limits
        for turn in range(len(self._counts), len(starts)):
            start = starts[turn - 1] if turn else starts[0]
            count = self._counts[-1] if turn else 0
            self._counts.append(count + sum(map(is_visible, source[start : starts[turn]])))
            if self._visible(turn) > limits.messages:
                self._drop_turns(turn)
                self.first_turn_with_tools = max(self.first_turn_with_tools, turn - limits.turns_with_tools)
            elif turn - self.first_turn_with_tools > limits.max_turns_with_tools:
                self.first_turn_with_tools = turn - limits.turns_with_tools

    def _visible(self, turn: int) -> int:
        """The number of visible messages that are sent of turns before this one."""
        return self._counts[turn] - self._counts[self.first_turn]

    def _drop_turns(self, turn: int) -> None:
        stop = turn - self.limits.turns if self.limits.messages else turn
        # The first step leaves only the minimum: nothing was saved yet to pay for writing more turns to the cache.
        target = self.limits.messages * _TARGET_SHARE if self.first_turn > 0 else 0
        while self.first_turn < stop and self._visible(turn) > target:
            self.first_turn += 1


@dataclass(slots=True, frozen=True)
class RecentTurns(IncrementalManager):
    """Leave out the oldest turns when finished turns have too many visible messages."""

    limits: RetentionLimits

    def new_view(self, source: Transcript, preserved: PreservedMessages, view_input: Hashable) -> IncrementalView:  # noqa: ARG002 - it depends on messages alone
        reason = f"older than the last {self.limits.messages} messages"
        return IncrementalWindow(source, preserved, self._start, _no_extra_indexes, reason)

    def fits(self, messages: Sequence[Message]) -> bool:
        return not self._start(Transcript.of(messages))

    def _start(self, source: Transcript) -> int:
        first_turn = RetentionBoundaries.of(source, self.limits).first_turn
        return source.turn_starts[first_turn] if first_turn else 0


@dataclass(slots=True, frozen=True)
class OldToolStripper(ToolStripper):
    """Show turns before the boundary of retention as text only."""

    limits: RetentionLimits = RetentionLimits(0, 0, 0)

    def _boundary(self, source: Transcript) -> int:
        first_turn = RetentionBoundaries.of(source, self.limits).first_turn_with_tools
        return min(source.turn_starts[first_turn], last_exchange(source).start) if first_turn else 0


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
        source_objects = set(map(id, source))  # not by origins: messages of a fold have none
        unchanged = sum(id(message) in source_objects for message in view)
        first_turn = RetentionBoundaries.of(source, retention_limits(self.config)).first_turn_with_tools
        return PruningDecision(
            loaded=len(source),
            preserved=len(source) - source.turn_starts[first_turn] if source.turn_starts else 0,
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
        count += _has_open_turn(source)
        boundary = (
            starts[-count] if 0 < count <= len(starts) else (len(source) if not count else source.leading_system_count)
        )
        first_turn_start = starts[0] if starts else source.leading_system_count
        rule = sending_rule(self.config)
        stripper = None
        if rule.older is Sent.TEXT_ONLY:
            stripper = ToolStripper(count if rule.latest is Sent.WITH_TOOLS else 0)
        view = (stripper or PassthroughManager()).curate(source)
        indexed = [(origin or 0, message) for origin, message in zip(view.origins, view, strict=True)]
        return RetainedContext(
            preserved=tuple(message for index, message in indexed if index >= max(boundary, first_turn_start)),
            discarded=tuple(message for index, message in indexed if first_turn_start <= index < boundary),
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

        `limit` is the maximum number of visible messages: those of the user, and answers with text. The preserved turns
        are always loaded, unless `limit` is 0. `excluding` are positions to leave out, such as that of the message being
        answered. The result is empty if the thread does not exist or, with a warning in the log, if the store is
        unavailable.

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
        preserved = max(1, self.config.preserve_turns)
        # A turn has at least one visible message, so these turns are enough.
        loaded = await store.load(thread_id, last_turns=max(max_messages, preserved) + len(excluded))
        leading_count = loaded.conversation.lead
        included_messages = [
            (position, message)
            for position, message in zip(loaded.positions, loaded.messages, strict=True)
            if position not in excluded
        ]
        leading_messages = [message for position, message in included_messages if position < leading_count]
        is_purged = loaded.conversation.first > 0
        if loaded.start and leading_count and not is_purged:
            leading_messages = (await store.load(thread_id, since=0, limit=leading_count)).messages
        messages = [message for position, message in included_messages if position >= leading_count]
        turn_starts = [index for index, message in enumerate(messages) if is_user(message)]
        while len(turn_starts) > preserved and sum(map(is_visible, messages[turn_starts[0] :])) > max_messages:
            del turn_starts[0]
        return [*leading_messages, *(messages[turn_starts[0] :] if turn_starts else messages)]

    async def trim_old_turns(self, store: ConversationStore, conversation: str) -> TrimResult:
        """Trim the turns that are no longer preserved, as the configuration says. Each turn is trimmed once."""
        return await trim_old_turns(store, conversation, self.config)


def retention_manager(config: RetentionConfig, report: Report | None = None) -> HistoryManager:
    """The manager that prunes by a configuration: a passthrough if its mode is `off`."""
    return PassthroughManager() if config.mode == "off" else RetentionManager(config, report)


@lru_cache(maxsize=64)
def retention_limits(config: RetentionConfig) -> RetentionLimits:
    """The limits of the window. The turn being answered is always sent unchanged, and is not counted."""
    with_tools = sending_rule(config, mode="on").latest is Sent.WITH_TOOLS
    return RetentionLimits(
        config.max_loaded_messages, config.preserve_turns, config.preserve_turns if with_tools else 0
    )


@lru_cache(maxsize=64)
def _pruning_manager(config: RetentionConfig) -> ComposedManager:
    """The managers that prune in mode `on`."""
    limits = retention_limits(config)
    window = RecentTurns(limits)
    if sending_rule(config, mode="on").older is Sent.WITH_TOOLS:
        return ComposedManager((window,))
    return ComposedManager((OldToolStripper(limits.turns_with_tools, limits=limits), window))


def _has_open_turn(source: Transcript) -> bool:
    """Whether the newest turn waits for its answer."""
    last_message = source[-1] if source.turn_starts else None
    return last_message is not None and not (role_of(last_message) == "assistant" and not call_ids(last_message))


def log_decision(decision: PruningDecision) -> None:
    """Log a decision; the log record has its numbers as the attribute `pruning`."""
    numbers = asdict(decision)
    _LOG.info("pruned %s", " ".join(f"{name}={value}" for name, value in numbers.items()), extra={"pruning": numbers})


def _no_extra_indexes(source: Transcript, start: int) -> set[int]:  # noqa: ARG001 - IncrementalWindow's signature
    return set()
