"""`AsyncConversation`: a stored conversation that messages are appended to and views are taken from.

It is a handle on `ModelCall`, which builds views and stores their minutes. The record is in memory while the handle is
open; before each view the handle reads from the store what other processes have added.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from types import NoneType, TracebackType
from typing import Any, Self, TypeAlias, Unpack, overload
from uuid import uuid4

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.events import RunEvent
from minutebook.agent.messages import PromptResponse
from minutebook.compaction.manager import CompactionManager, CompactionResult
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer
from minutebook.compaction.turns import TurnStrategy
from minutebook.conversation.agent_call import RunLimits, RunRecord
from minutebook.conversation.compactor import FoldStorage
from minutebook.conversation.handle.calls import ConversationCalls, answer_documents
from minutebook.conversation.handle.policy_builder import PolicyBuilder
from minutebook.conversation.handle.store_lifetime import close_own_store, open_own_store
from minutebook.conversation.model_call import no_documents
from minutebook.conversation.requests import (
    MessageReason,
    Request,
    find_request,
    read_requests,
)
from minutebook.errors import InvalidSetting, MissingSetting, require_type
from minutebook.history.protocol import HistoryManager, SessionProtocol
from minutebook.history.view import View
from minutebook.prompt.section import Section
from minutebook.prompt.tools import AnyTool
from minutebook.record.fold import Fold
from minutebook.record.message import Message, Provider, plain_copy, refuse_recursion
from minutebook.record.validation import rejected_kinds
from minutebook.session.state import Session
from minutebook.store.base import ConversationStore
from minutebook.store.types import ConversationHeader, ErasureReceipt, StoredFold, require_name
from minutebook.tokens.models import ModelInfo
from minutebook.wire.read import read_arguments

MessageInput: TypeAlias = Any
"""Text (a user message), a message dict, a list of them, or an object of the official openai or anthropic client."""


class AsyncConversation(ConversationCalls):
    """A conversation in a store: append messages, take views that fit the model, and ask why a message was not sent.

    `store` is a store, a database URL, or the name of a SQLite file; "memory:" forgets everything on exit. Without `id`,
    `recipient` continues that recipient's newest open conversation, or starts one. `system` is the first message of a new
    conversation.

    A view has at most `max_tokens` tokens: by default the input limit of `model`, less the room for its answer. `manager`
    (one or several, or their names, such as "tool_result_truncator:4000") prepares the view before the budget cuts it.
    `strategy` folds old messages when the window gets full; `summarizer` writes its summaries, else they are extracts.
    `policy` is the name of a policy instead of these three.

    Open it with `async with`, or let the first call open it and end with `close()`.

    Raises:
        InvalidSetting: a setting is invalid, or settings exclude each other.
    """

    def __init__(
        self,
        id: str | None = None,  # noqa: A002 - the natural name for callers
        *,
        store: ConversationStore | str | Path = "memory:",
        recipient: str | None = None,
        system: str | None = None,
        model: str | ModelInfo | None = None,
        max_tokens: int | None = None,
        manager: HistoryManager | str | Sequence[HistoryManager | str] = (),
        strategy: HistoryStrategy | str | None = None,
        summarizer: Summarizer | None = None,
        policy: str | None = None,
        provider: Provider | None = None,
    ) -> None:
        require_type("system", system, (str, NoneType), "the text of a system message")
        if provider is not None:
            rejected_kinds(provider)
        super().__init__(
            store if isinstance(store, ConversationStore) else open_own_store(store),
            str(uuid4()) if id is None and recipient is None else None if id is None else require_name("id", id),
            None if recipient is None else require_name("recipient", recipient),
            system,
            PolicyBuilder(
                model=model,
                max_tokens=max_tokens,
                managers=manager,
                strategy=strategy,
                summarizer=summarizer,
                name=policy,
            ),
        )
        self._policy.check_system(system)
        self._owns_store = not isinstance(store, ConversationStore)
        self.provider: Provider = provider or self._policy.provider

    @property
    def id(self) -> str:
        """The conversation's id. With only a `recipient` it is known once the conversation is open."""
        if self._id is None:
            raise MissingSetting("the conversation's id", "open the conversation first: async with conversation")
        return self._id

    def __len__(self) -> int:
        return len(self._record)

    @overload
    def __getitem__(self, position: int) -> Message: ...
    @overload
    def __getitem__(self, position: slice) -> list[Message]: ...
    def __getitem__(self, position: int | slice) -> Message | list[Message]:
        """The message at a position of the record, as it is stored. No fold is applied.

        It may have keys that only minutebook reads, such as `~items`, from which the items of the Responses API are
        restored when messages are appended to another conversation. The messages of `view()` do not have them.
        """
        copy: Message | list[Message] = plain_copy(self._record[position])
        return copy

    def __iter__(self) -> Iterator[Message]:
        return map(plain_copy, self._record)

    def __bool__(self) -> bool:
        return True  # an empty conversation is still a conversation

    def __repr__(self) -> str:
        state = "not open" if self._source is None and self._run is None else f"{len(self):,} messages"
        name = repr(self._id) if self._id is not None else f"of {self._recipient!r}"
        return f"<{type(self).__name__} {name}: {state}>"

    async def open(self) -> Self:
        """Read the conversation from the store. Every other method does this if it is needed."""
        await self._read_locked()
        return self

    async def close(self) -> None:
        """Close the store, if this handle opened it."""
        if self._owns_store:
            await close_own_store(self.store)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def header(self) -> ConversationHeader:
        """The stored metadata: recipient, status, times, version, length.

        Raises:
            ConversationNotFound: the conversation has no message yet.
        """
        await self._open_locked()
        return await self.store.header(self.id)

    async def append(
        self, *messages: MessageInput, idempotency_key: str | None = None, request: int | None = None
    ) -> int:
        """Append messages atomically, and return the position of the last one.

        Append an assistant message with tool calls together with their results, so that a crash never leaves a call
        without its result. If another process has left one, an "interrupted" result is appended before these messages, and
        a warning is logged. The usage of a response is stored in the minutes of `request`, by default of the newest view if
        this is its first response.

        Raises:
            InvalidMessage: a message is not understood, or a reasoning item comes without the rest of its output.
            BrokenConversation: a message breaks the pairing of tool calls and results.
            LeaseLost: the lease of this handle was lost to another holder.
            IdempotencyConflict: the key was used with other messages.
        """
        require_type("request", request, (int, NoneType), "the number of a request")
        if idempotency_key is not None:
            require_name("idempotency_key", idempotency_key)
        inputs = read_arguments(messages)
        # Copies: the caller may change its messages later, and the record must not change with them.
        with refuse_recursion():
            new_messages: list[Message] = [plain_copy(message) for part in inputs for message in part.messages]
        if not new_messages:
            raise InvalidSetting("messages", [], "at least one message")
        response = next((part for part in inputs if part.usage is not None), None)
        if request is not None and response is None:
            raise InvalidSetting("request", request, "None, because no message is a response with its usage")
        async with self._lock:
            await self._open()
            minutes = None if response is None else await self._minutes_to_answer(request)
            position = await self._append_messages(
                new_messages,
                idempotency_key,
                provider=self.provider,
                model=self._policy.model_name if response is None else response.model,
                documents=no_documents if response is None else partial(answer_documents, minutes, response),
            )
            if minutes is self._unanswered_request:
                self._unanswered_request = None  # a second answer must not replace the usage of this one
            return position

    async def view(self, *, tools: Sequence[Any] = (), provider: Provider | None = None) -> View:
        """The messages to send now, valid for the provider and within the budget. The request is numbered and recorded.

        `tools` are the tool definitions of the request, whose tokens count too.

        Raises:
            CannotFit: the messages that must be sent exceed the budget.
            MissingSetting: the conversation has no messages.
        """
        async with self._lock:
            return await self._record_view(tools, provider)

    async def fit(self, *, tools: Sequence[Any] = (), provider: Provider | None = None) -> View:
        """The view that `view` would return, without recording a request or storing a fold. Summaries are extracts.

        Raises:
            CannotFit: the messages that must be sent exceed the budget.
            MissingSetting: the conversation has no messages.
        """
        async with self._lock:
            call = self._model_call(await self._synchronize(), tools, provider)
            await call.preview()
            return call.view()

    async def requests(self, last: int = 20) -> list[Request]:
        """The newest recorded requests, oldest first."""
        require_type("last", last, int, "a number of requests")
        source = await self._read_locked()
        if not self._version or last < 1:
            return []
        documents = [item async for item in read_requests(self.store, self.id)][-last:]
        return [Request.of(number, document, source.record) for number, document in documents]

    async def request(self, number: int) -> Request:
        """One recorded request.

        Raises:
            RequestNotFound: there is no request with that number.
        """
        require_type("request", number, int, "the number of a request")
        source = await self._read_locked()
        number, document = await find_request(self.store, self.id, number)
        return Request.of(number, document, source.record)

    async def why(self, message: int, *, request: int) -> MessageReason:
        """Whether a message was sent in a request and, if not unchanged, the reason.

        Raises:
            RequestNotFound: there is no request with that number.
            InvalidSetting: the record had no such message at that time.
        """
        return (await self.request(request)).why(message)

    async def run(
        self,
        adapter: ProviderAdapter,
        request: MessageInput | None = None,
        *,
        tools: Sequence[AnyTool | Callable[..., Any]] = (),
        sections: Sequence[Section[Any]] = (),
        session: Session | None = None,
        **limits: Unpack[RunLimits],
    ) -> PromptResponse[str]:
        """Call the model and the tools it requests until it answers. Every message and request is stored as it happens.

        `request` is the user message. Without it, the run continues after the last stored message, for example when the
        process of an earlier run was killed. `tools` are functions or `Tool` objects; `sections` follow the system
        message in the prompt. The conversation is leased to the run. Other tasks may use the handle meanwhile: what they
        append is stored between the exchanges of the run.

        Raises:
            ConversationBusy: another process holds the lease of this conversation, or this handle has a run.
            MissingSetting: the conversation is empty and there is no request.
            ProviderFailed, CannotFit, DeadlineExceeded, BudgetExceeded, TooManyCalls: see `ProviderAdapter.evaluate`.
        """
        async with self._runner(adapter, request, tools, sections, session, limits) as runner:
            return await runner.run()

    async def stream(
        self,
        adapter: ProviderAdapter,
        request: MessageInput | None = None,
        *,
        tools: Sequence[AnyTool | Callable[..., Any]] = (),
        sections: Sequence[Section[Any]] = (),
        session: Session | None = None,
        **limits: Unpack[RunLimits],
    ) -> AsyncGenerator[RunEvent, None]:
        """Do the same as `run`, and yield the events: text deltas, tool calls, and `RunFinished` last.

        `str(event)` is a line of text for output.

        Closing the generator cancels the run; the text of an incomplete answer is stored. Nothing happens before the first
        event is requested: that call raises the errors of `run`, such as `ConversationBusy`.
        """
        async with (
            self._runner(adapter, request, tools, sections, session, limits) as runner,
            aclosing(runner.stream()) as events,
        ):
            async for event in events:
                yield event

    def open_run(
        self, adapter: ProviderAdapter, *, session: SessionProtocol, tools: Sequence[Mapping[str, Any]] = ()
    ) -> AbstractAsyncContextManager[RunRecord]:
        """The record for one run of a `ConversationRunner`, which saves to it. It holds the conversation's lease.

        The stored plan is restored in the session, unless that has one.

        Raises:
            ConversationBusy: another process holds the lease of this conversation.
        """
        return self._open_run(adapter, session, tools)

    async def compact(self, strategy: HistoryStrategy | str | None = None) -> CompactionResult:
        """Fold old messages now, even if the window is not full: by `strategy`, the handle's, or `TurnStrategy`.

        The result is true if messages were folded. If the summarizer fails, nothing is changed and the result has the
        reason.
        """
        source = await self._read_locked()
        storage = FoldStorage(self.store, self.id, source.folds)
        manager = CompactionManager(
            strategy or self._policy.strategy or TurnStrategy(),
            self._policy.model,
            self._policy.summarizer,
            folds=source.folds,
            save_fold=storage.save,
            load_rewinds=storage.rewinds,
            conversation=self.id,
            tenant=self.store.tenant,
            manager=self._policy.policy.manager,
        )
        return await manager.apply(source.record)

    async def folds(self) -> list[Fold]:
        """The folds that views apply, by position. Those that a later fold has replaced are not among them."""
        return list((await self._read_locked()).folds)

    async def undo(self, fold: Fold | str) -> StoredFold:
        """Undo a fold: views are as before it, byte for byte. If it had replaced earlier folds, these are applied again.

        The record always has all messages: `list(conversation)`. To have all of them in views again, undo every fold that
        `folds()` returns. The strategy may fold them again when the window gets full.

        Raises:
            FoldNotFound: no fold has that id.
            FoldConflict: the folded messages were purged.
        """
        require_type("fold", fold, (Fold, str), "a fold or its id")
        await self._open_locked()
        stored = await self.store.undo_fold(self.id, fold if isinstance(fold, str) else fold.id)
        await self._read_locked()
        return stored

    @asynccontextmanager
    async def lease(self, seconds: float = 60) -> AsyncIterator[Self]:
        """Hold the conversation's lease for this block: other holders get `ConversationBusy`. It renews itself.

        Raises:
            ConversationBusy: another holder has the lease.
            LeaseLost: the lease expired and another holder took it.
        """
        async with self._lease(seconds):
            yield self

    async def pin(self, position: int) -> None:
        """Include this message, with its exchange, in every view.

        A message that a fold already hides stays hidden until the fold is undone or replaced.
        """
        await self._open_locked()
        await self.store.pin(self.id, self._require_position(position))

    async def unpin(self, position: int) -> None:
        """Let views leave this message out again."""
        await self._open_locked()
        await self.store.unpin(self.id, self._require_position(position))

    def _require_position(self, position: int) -> int:
        """Check that the record has a message at a position, and return the position counted from the start."""
        require_type("position", position, int, "the position of a message")
        if not -len(self) <= position < len(self):
            raise InvalidSetting("position", position, f"0 to {len(self) - 1}" if len(self) else "a stored message")
        return position % len(self)

    async def fork(self, new_id: str | None = None, *, at: int | None = None) -> "AsyncConversation":
        """A new conversation with the messages before `at` (default: all), with the settings of this one.

        Raises:
            VersionConflict: `new_id` is taken.
            InvalidSetting: `at` is within an exchange or not within the record.
        """
        require_type("at", at, (int, NoneType), "the position of a message")
        await self._open_locked()
        header = await self.store.fork(self.id, new_id or f"{self.id[:400]}.{uuid4().hex}", at=at)
        fork = AsyncConversation(header.id, store=self.store, system=self._system, provider=self.provider)
        fork._policy = self._policy
        return await fork.open()

    async def rewind(self, to: int, *, expected_version: int | None = None) -> ConversationHeader:
        """Hide the messages from position `to` on and continue from there; return the new header.

        They stay in the record, `list(conversation)`, and views no longer show them. `undo` shows them again: the fold has
        the reason `rewind`. A negative position counts from the end.

        Raises:
            VersionConflict: the conversation has another version than expected.
            InvalidSetting: the position is within an exchange or not within the record.
        """
        require_type("to", to, int, "the position of a message")
        async with self._lock:
            length = len((await self._open()).record)
            if not -length <= to <= length:
                raise InvalidSetting("to", to, f"0 to {length}")
            return await self._rewind(to + length if to < 0 else to, expected_version)

    async def clear(self, *, expected_version: int | None = None) -> ConversationHeader:
        """Hide all messages and begin again under the same id; return the new header. See `rewind`.

        The next append adds the system message again, if the handle has one.

        Raises:
            VersionConflict: the conversation has another version than expected.
        """
        async with self._lock:
            await self._open()
            return await self._rewind(None, expected_version)

    async def erase(self) -> ErasureReceipt:
        """Erase the conversation and its forks from the store, permanently."""
        await self._open_locked()
        receipt = await self.store.erase(conversation=self.id)
        self._forget()
        self._source = self._empty_source()
        return receipt
