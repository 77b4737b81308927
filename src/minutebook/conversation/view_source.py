"""The messages that the view of a request is built from: the loaded part of the record and the new messages."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from minutebook.conversation.policy import Policy
from minutebook.errors import CannotFit, MinutebookError, PromptEvaluationError
from minutebook.history.compose import PassthroughManager, curated_view
from minutebook.history.curation import Curated
from minutebook.history.incremental import ContextualManager
from minutebook.history.overflow import AdaptiveViewBuilder
from minutebook.history.protocol import NO_CONTEXT, CurationContext, HistoryManager, SessionProtocol
from minutebook.history.view import View
from minutebook.record.fold import Fold, cleared_count
from minutebook.record.message import Message, Provider, leading_system_count
from minutebook.record.transcript import Transcript
from minutebook.session.state import Session
from minutebook.store.base import ConversationStore
from minutebook.store.types import LoadedConversation
from minutebook.tokens import TokenCounter

_LOG: Final = logging.getLogger("minutebook.conversation")
_NO_SESSION: Final = Session()


class ViewSource:
    """A record, its folds, and the position of each of its messages in the store.

    The store checks new messages, so any message is accepted here, also one that only an import or an earlier version
    could store. A view repairs such a message and reports it in `violations`.

    A compaction strategy addresses messages by position, so it needs the `whole_record`. Otherwise the part that the
    view shows is enough.
    """

    def __init__(
        self,
        loaded: LoadedConversation | None,
        new_messages: Sequence[Message],
        *,
        counter: TokenCounter,
        whole_record: bool,
    ) -> None:
        self.folds: tuple[Fold, ...] = ()
        """The folds that a view applies to the record."""
        self.front: list[Message] = []
        """System messages of this request only, which are sent before all others.

        It is empty if the record has leading system messages: `set_instructions` then replaces those.
        """
        start = 0
        if loaded is None:
            self.record, self.positions = Transcript(counter=counter, broken="mark"), list[int | None]()
        else:
            start = loaded.conversation.length
            self._load(loaded, counter, whole_record=whole_record)
        self.extend(new_messages, start)

    def _load(self, loaded: LoadedConversation, counter: TokenCounter, *, whole_record: bool) -> None:
        if not whole_record:
            self.record = loaded.transcript(counter=counter)
            self.positions = [position for position, _ in loaded.shown()]
            return
        messages = [*purged_messages(loaded.start), *loaded.messages]
        self.record = Transcript(messages, counter=counter, broken="mark")
        self.positions = list(range(len(self.record)))
        self.folds = loaded.folds
        for position in loaded.pins:
            if position >= loaded.start:
                self.record.pin(position)

    @property
    def start(self) -> int:
        """The index of the first message that is not cleared; the length of the record if there is none."""
        return cleared_count(self.folds)

    def extend(self, messages: Sequence[Message], start: int | None = None) -> None:
        """Append messages that have the positions from `start` on; by default they follow the record."""
        for position, message in enumerate(messages, len(self.record) if start is None else start):
            self.record.append(message)
            self.positions.append(position)

    def set_pins(self, pins: Collection[int]) -> None:
        """Set the pinned positions of a whole record."""
        for position in self.record.pins.difference(pins):
            self.record.unpin(position)
        for position in pins:
            if position < len(self.record) and position not in self.record.pins:
                self.record.pin(position)

    def set_instructions(self, messages: Sequence[Message]) -> int:
        """Replace the record's leading system messages in this request. Return the tokens of the messages in `front`.

        They are shown by a fold that is never stored, or are in `front` if the record has none to replace.
        """
        leading_count = leading_system_count(self.record)
        if list(self.record[:leading_count]) == list(messages):
            return 0
        if not leading_count:
            self.front = list(messages)
            return sum(map(self.record.counter.message, messages))
        replacement = Fold(
            "instructions", 0, leading_count, tuple(messages), "this request has its own system messages"
        )
        self.folds = (*(fold for fold in self.folds if fold.start >= leading_count), replacement)
        return 0

    def view(self, view_builder: AdaptiveViewBuilder) -> View:
        """The view within the current limit of `view_builder`."""
        return view_builder.view(self.record, self.folds)


async def load_record(store: ConversationStore, conversation: str) -> LoadedConversation:
    """Load all messages of a conversation with all active folds, also those over purged messages only."""
    while True:
        loaded = await store.load(conversation)
        if not loaded.start:
            return loaded
        shown = await store.load(conversation, last_turns=0, folded=True)
        if shown.conversation.version == loaded.conversation.version:
            return replace(loaded, folds=shown.folds)


def purged_messages(count: int) -> list[Message]:
    """Empty messages in place of purged ones, so that index and position are equal. Active folds hide them."""
    return [{"role": "user", "content": ""}] * count


class FailOpenManager(ContextualManager):
    """Sends all messages if the wrapped manager fails; `bypass` is then the name of the error."""

    def __init__(self, manager: HistoryManager) -> None:
        self.inner = manager
        self.bypass: str | None = None

    def curate(
        self,
        messages: Sequence[Message],
        *,
        session: SessionProtocol | None = None,
        context: CurationContext | None = None,
    ) -> Curated:
        source = Transcript.of(messages, counter=self.default_counter())
        try:
            return curated_view(self.inner, source, session, context or NO_CONTEXT)
        except CannotFit:
            raise
        except Exception as error:  # noqa: BLE001 - a manager is user-supplied code
            _LOG.warning("the history manager failed, so all messages are sent: %s", type(error).__name__)
            kind = type(error) if isinstance(error, MinutebookError) else PromptEvaluationError
            self.bypass = kind.__name__
            return PassthroughManager().curate(source.coherent())

    def fits(self, messages: Sequence[Message]) -> bool:
        return isinstance(self.inner, ContextualManager) and self.inner.fits(messages)

    def default_counter(self) -> TokenCounter | None:
        return self.inner.default_counter() if isinstance(self.inner, ContextualManager) else None


def view_builder_of(
    manager: HistoryManager, max_tokens: int | None, provider: Provider = "openai", *, keep_parts: bool = True
) -> AdaptiveViewBuilder:
    return AdaptiveViewBuilder(
        manager,
        session=_NO_SESSION,
        provider=provider,
        max_tokens=max_tokens,
        prompt_name="conversation",
        keep_parts=keep_parts,
    )


def compacts(policy: Policy) -> bool:
    """Whether a policy folds old messages before a call."""
    return policy.strategy is not None and policy.mode == "on"
