"""Retention (document 002): the newest turns whole, older ones as text, and nothing beyond a number of messages.

No summaries are made. The record keeps everything, but for the tool payloads that `age_out` is told to take from it.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from minutebook.conversation.config import Mode, RetentionConfig, Sent, sent
from minutebook.conversation.trimming import Aged, age_out, expanded
from minutebook.errors import ConversationNotFound, InvalidSetting, StoreUnavailable
from minutebook.history.compose import ComposedManager, PassthroughManager
from minutebook.history.curated import Curated, Trail, tokens_of_view
from minutebook.history.incremental import ContextualManager, Curator, Draft, Keep, WindowDraft
from minutebook.history.protocol import CurationContext, HistoryManager, SessionProtocol
from minutebook.history.tool_calls import ToolStripper
from minutebook.record.message import Message, is_user
from minutebook.record.transcript import Transcript
from minutebook.store.base import ConversationStore

_LOG: Final = logging.getLogger("minutebook.retention")


@dataclass(frozen=True, slots=True)
class PruningDecision:
    """What retention did to one conversation, or in shadow mode would have done; numbers only, for the log."""

    loaded: int
    """Messages that there were."""
    preserved: int
    """Messages of the preserved turns."""
    pruned: int
    """Messages that are not sent, or not as they are."""
    tokens_before: int
    tokens_after: int
    mode: Mode


Report: TypeAlias = Callable[[PruningDecision], object]


@dataclass(frozen=True, slots=True)
class RetainedContext:
    """A conversation split in two, and what the model is sent of both."""

    preserved: tuple[Message, ...]
    """The newest turns, as they are sent."""
    discarded: tuple[Message, ...]
    """What is sent of the older turns."""
    messages: list[Message]
    """All that is sent: what stands before the first turn, the older turns and the newest."""


@dataclass(slots=True, frozen=True)
class RecentTurns(Curator):
    """Keep the newest messages, from the start of a turn on; so many of the newest turns stay whatever their size."""

    messages: int
    """The most messages, not counting system messages at the front; 0 keeps the newest turn alone."""
    turns: int = 1

    def draft(self, source: Transcript, keep: Keep, basis: Hashable) -> Draft:  # noqa: ARG002 - it depends on messages alone
        reason = f"older than the last {self.messages} messages"
        return WindowDraft(source, keep, self._start, _nothing_more, reason)

    def fits(self, messages: Sequence[Message]) -> bool:
        source = Transcript.of(messages)
        return len(source) - source.lead <= self.messages

    def _start(self, source: Transcript) -> int:
        starts = source.turn_starts
        if len(source) - source.lead <= self.messages or not starts:
            return 0
        return starts[first_turn(starts, len(source) - self.messages, self.turns if self.messages else 1)]


@dataclass(slots=True, frozen=True)
class RetentionManager(ContextualManager):
    """What `RetentionPolicy` decides, as a manager. In shadow mode it reports what it would do, and does nothing."""

    config: RetentionConfig
    report: Report | None = None
    """What is told of every decision; None for nobody."""

    def curate(
        self,
        messages: Sequence[Message],
        *,
        session: SessionProtocol | None = None,
        context: CurationContext | None = None,
    ) -> Curated:
        source = Transcript.of(messages)
        pruned = self._pruned(source, session, context)
        if self.report is not None and (self.report is not log_decision or _LOG.isEnabledFor(logging.INFO)):
            self.report(self._decision(source, pruned))
        return pruned if self.config.mode == "on" else PassthroughManager().curate(source.coherent())

    def fits(self, messages: Sequence[Message]) -> bool:
        return self.config.mode != "on" or _pruning(self.config).fits(messages)

    def decision(self, source: Transcript) -> PruningDecision:
        """What is pruned of a record, or in shadow mode would be."""
        return self._decision(source, self._pruned(source, None, None))

    def _pruned(self, source: Transcript, session: SessionProtocol | None, context: CurationContext | None) -> Curated:
        pruning = _pruning(self.config)
        with source.lock:
            is_whole = source.coherent() is source and pruning.fits(source)
        if not is_whole:
            return pruning.curate(source, session=session, context=context)
        # Nobody has anything to say; who would have been asked is as in every other view.
        nothing: tuple[Trail | None, ...] = (None,) * len(pruning.managers)
        return Curated(source, PassthroughManager().curate(source).origins, nothing)

    def _decision(self, source: Transcript, view: Curated) -> PruningDecision:
        kept = sum(
            1 for message, at in zip(view, view.origins, strict=True) if at is not None and source[at] is message
        )
        starts = source.turn_starts[-self.config.preserve_turns :] if self.config.preserve_turns else []
        return PruningDecision(
            loaded=len(source),
            preserved=len(source) - starts[0] if starts else 0,
            pruned=len(source) - kept,
            tokens_before=source.tokens,
            tokens_after=tokens_of_view(source, view),
            mode=self.config.mode,
        )


class RetentionPolicy:
    """What is loaded, sent and kept of conversations, by one configuration. `report` takes the place of the log."""

    def __init__(self, config: RetentionConfig | None = None, *, report: Report | None = None) -> None:
        self.config = RetentionConfig() if config is None else config
        self._report = log_decision if report is None else report

    def manager(self) -> HistoryManager:
        """What is sent, as a manager: pure, but that it says what it decided."""
        return retention_manager(self.config, self._report)

    def build_context(self, messages: Sequence[Message], preserve_turns: int | None = None) -> RetainedContext:
        """Split messages, oldest first, into the newest turns and the older ones, and say what is sent of both.

        Rows with `tools_used` become the calls and results that a provider takes. Calls without a result and results
        without a call are left out, or get what they lack, as in every view.

        Raises:
            InvalidSetting: `preserve_turns` is negative.
        """
        count = self.config.preserve_turns if preserve_turns is None else preserve_turns
        if count < 0:
            raise InvalidSetting("preserve_turns", preserve_turns, "a whole number, 0 or more")
        source = Transcript.of(Transcript.of(expanded(messages)).coherent().since(0))
        starts = source.turn_starts
        boundary = starts[-count] if 0 < count <= len(starts) else (len(source) if not count else source.lead)
        before = starts[0] if starts else source.lead
        parts = sent(self.config)
        stripper = None
        if parts.older is Sent.TEXT_ONLY:
            stripper = ToolStripper(count if parts.latest is Sent.WITH_TOOLS else 0)
        view = (stripper or PassthroughManager()).curate(source)
        placed = [(0 if at is None else at, message) for at, message in zip(view.origins, view, strict=True)]
        return RetainedContext(
            preserved=tuple(message for at, message in placed if at >= max(boundary, before)),
            discarded=tuple(message for at, message in placed if before <= at < boundary),
            messages=list(view),
        )

    async def load_messages(
        self,
        store: ConversationStore | None,
        thread_id: str,
        limit: int | None = None,
        excluding: Collection[int] | int | None = None,
    ) -> list[Message]:
        """The newest messages of a thread, oldest first, from the start of a turn on; 0 are none.

        The preserved turns are among them whatever the limit. `excluding` are positions that are not to be among
        them, such as that of the message that is being answered. A thread that is not there has no messages, and
        while the store is away none has: that is logged, and fails nothing.

        Raises:
            InvalidSetting: the limit is negative.
        """
        most = self.config.max_loaded_messages if limit is None else limit
        if most < 0:
            raise InvalidSetting("limit", limit, "a whole number, 0 or more")
        left_out = {excluding} if isinstance(excluding, int) else set(excluding or ())
        if not most:
            return []
        try:
            return await self._loaded(store, thread_id, most, left_out)
        except ConversationNotFound:
            return []
        except OSError as error:  # StoreUnavailable and TimeoutError are such
            _LOG.warning("the history of %r cannot be read, and is taken for empty: %s", thread_id, error)
            return []

    async def _loaded(
        self, store: ConversationStore | None, thread_id: str, most: int, left_out: set[int]
    ) -> list[Message]:
        if store is None:
            raise StoreUnavailable("no database", "there is none")
        turns = max(1, self.config.preserve_turns)
        found = await store.load(thread_id, last_messages=most + len(left_out))
        if found.start and sum(map(is_user, found.messages)) <= turns + len(left_out):
            found = await store.load(thread_id, last_turns=turns + len(left_out))
        lead = found.conversation.lead
        pairs = [pair for pair in zip(found.positions, found.messages, strict=True) if pair[0] not in left_out]
        front = [message for at, message in pairs if at < lead]
        if found.start and lead and not found.conversation.first:
            front = (await store.load(thread_id, since=0, limit=lead)).messages
        messages = [message for at, message in pairs if at >= lead]
        starts = [at for at, message in enumerate(messages) if is_user(message)]
        if starts and (found.start > lead or len(messages) > most):
            messages = messages[starts[first_turn(starts, max(0, len(messages) - most), turns)] :]
        return [*front, *messages]

    async def age_out(self, store: ConversationStore, conversation: str) -> Aged:
        """Trim what has left the preserve window since the last time, as the configuration says; once for each row."""
        return await age_out(store, conversation, self.config)


def retention_manager(config: RetentionConfig, report: Report | None = None) -> HistoryManager:
    """What sends conversations as a configuration says."""
    return PassthroughManager() if config.mode == "off" else RetentionManager(config, report)


@lru_cache(maxsize=64)
def _pruning(config: RetentionConfig) -> ComposedManager:
    """What is done where the mode is on. The turn that is being answered is no history: it stays whole."""
    would = sent(config, mode="on")
    turns = max(1, config.preserve_turns)
    window = RecentTurns(config.max_loaded_messages, turns)
    if would.older is Sent.WITH_TOOLS:
        return ComposedManager((window,))
    return ComposedManager((window, ToolStripper(turns if would.latest is Sent.WITH_TOOLS else 1)))


def first_turn(starts: Sequence[int], place: int, turns: int) -> int:
    """Which turn a window begins with that may begin at `place`: the next one, or earlier where turns must stay."""
    return max(0, min(bisect_left(starts, place), len(starts) - max(1, turns)))


def log_decision(decision: PruningDecision) -> None:
    """The decision as a line of the log, its numbers as fields of the record."""
    said = asdict(decision)
    _LOG.info("pruned %s", " ".join(f"{name}={value}" for name, value in said.items()), extra={"pruning": said})


def _nothing_more(source: Transcript, start: int) -> set[int]:  # noqa: ARG001 - a draft's shape
    return set()
