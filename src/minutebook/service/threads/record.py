"""The record of a thread during an answer. Without its database, an answer continues if the configuration allows it."""

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from minutebook.agent.adapter import ProviderAdapter
from minutebook.conversation.agent_call import RunRecord
from minutebook.conversation.minutes import CallSettings
from minutebook.conversation.view_source import ViewSource
from minutebook.errors import StoreUnavailable
from minutebook.history.protocol import SessionProtocol
from minutebook.history.view import View
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.store.base import ConversationStore
from minutebook.store.types import NewDocument
from minutebook.wire.chat import entry_to_provider_message, new_entries

_LOG: Final = logging.getLogger("minutebook.service")


class ThreadRecord(RunRecord):
    """The record of a thread while an agent answers its last message. It is the `conversation` of the agent's runner."""

    def __init__(
        self,
        store: ConversationStore,
        settings: CallSettings,
        source: ViewSource,
        new_messages: Sequence[Message],
        *,
        version: int,
        recipient: str | None,
        last_request: int,
        is_recorded: bool,
        is_optional: bool,
        observe_append: Callable[[float], None],
    ) -> None:
        """`new_messages` are stored by `store_first`. `is_optional`: continue if the database becomes unavailable.

        `observe_append` gets the seconds of each append.
        """
        source.extend(new_messages)
        super().__init__(
            store,
            settings,
            source,
            version=version,
            recipient=recipient,
            last_request=last_request,
            first_entries=new_entries(new_messages, provider=settings.provider, model=settings.model),
        )
        self.is_recorded = is_recorded
        """Whether everything so far was stored."""
        self._is_optional = is_optional
        self._is_retry = not new_messages
        self._observe_append = observe_append

    @asynccontextmanager
    async def open_run(
        self,
        adapter: ProviderAdapter,  # noqa: ARG002 - the protocol's names
        *,
        session: SessionProtocol,  # noqa: ARG002
        tools: Sequence[Mapping[str, Any]] = (),  # noqa: ARG002
    ) -> AsyncIterator[RunRecord]:
        """The record itself: the caller holds the lease."""
        yield self

    async def find_interrupted_message(self) -> Message | None:
        return await super().find_interrupted_message() if self.is_recorded and self._is_retry else None

    async def begin_request(self, view: View) -> int:
        if self.is_recorded:
            async with self._optional_store():
                return await super().begin_request(view)
        return self._start_request(self._next_request(view))

    async def begin_tools(self, message: Message) -> None:
        if self.is_recorded:
            async with self._optional_store():
                await super().begin_tools(message)

    async def save(self, entries: Sequence[ConversationEntry], *, session: SessionProtocol) -> None:
        """Store entries, except the text of an incomplete answer: it is stored with the failure of the run."""
        complete = [entry for entry in entries if not entry_to_provider_message(entry).get("interrupted")]
        if self.is_recorded and complete:
            started = time.monotonic()
            async with self._optional_store():
                await super().save(complete, session=session)
                self._observe_append(time.monotonic() - started)

    async def end(self, documents: Sequence[NewDocument]) -> None:
        """Store the documents of a complete answer, and trim old turns."""
        if self.is_recorded:
            async with self._optional_store():
                await self._put_documents(documents)
                await self.trim()

    async def fail(self, outcome: Mapping[str, Any], documents: Sequence[NewDocument] = ()) -> None:
        """Store the documents of a failed run. A request that was answered keeps its outcome."""
        if self.is_recorded:
            answered = self.requests and self.request.outcome
            await super().fail(answered or outcome, documents)

    async def _save_fold(self, fold: Fold) -> Fold:
        return await super()._save_fold(fold) if self.is_recorded else fold

    @asynccontextmanager
    async def _optional_store(self) -> AsyncIterator[None]:
        """Note that the answer is not recorded if the database becomes unavailable in this block and is optional."""
        try:
            yield
        except StoreUnavailable:
            if not self._is_optional:
                raise
            _LOG.warning("the database is unavailable: an answer is not recorded")
            self.is_recorded = False
