"""`AsyncConversation`: a stored conversation that messages are appended to and views are taken from.

It is a handle on `ModelCall`, which builds views and stores their minutes. The record is kept
in memory while the handle is open; before each view the handle reads from the store what other processes have added.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import NoneType, TracebackType
from typing import Any, Final, Self, TypeAlias, Unpack, overload
from uuid import uuid4

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.events import RunEvent
from minutebook.agent.messages import PromptResponse, usage_from
from minutebook.agent.prompt_message import text_prompt
from minutebook.agent.recorder import interrupted_result
from minutebook.agent.runner import ConversationRunner
from minutebook.compaction.manager import CompactionManager, CompactionResult
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer
from minutebook.compaction.turns import TurnStrategy
from minutebook.conversation.agent_call import LEASE_SECONDS, RunLimits, RunRecord
from minutebook.conversation.compactor import FoldStorage
from minutebook.conversation.handle.lock import TaskLock
from minutebook.conversation.lease import RenewedLease, hold_lease
from minutebook.conversation.minutes import (
    CallSettings,
    MessageReason,
    Request,
    SentRequest,
    find_request,
    last_request_number,
    read_requests,
    request_id,
    usage_json,
)
from minutebook.conversation.model_call import ModelCall
from minutebook.conversation.policy import PolicyBuilder
from minutebook.conversation.view_source import ViewSource
from minutebook.errors import (
    ConversationErased,
    ConversationNotFound,
    DocumentExists,
    InvalidSetting,
    MissingSetting,
    VersionConflict,
    require_type,
)
from minutebook.history.protocol import HistoryManager, SessionProtocol
from minutebook.history.view import View
from minutebook.planning.budget import StepHistoryManager
from minutebook.planning.history_section import TaskHistorySection
from minutebook.prompt.section import Section
from minutebook.prompt.tools import AnyTool, Tool, tool
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import Message, Provider, call_ids, is_result, is_system, plain_copy, result_id, text_of
from minutebook.record.transcript import Transcript
from minutebook.record.validation import rejected_kinds
from minutebook.session.state import Session
from minutebook.store.base import ConversationStore
from minutebook.store.types import (
    ConversationHeader,
    ConversationStatus,
    ErasureReceipt,
    NewDocument,
    StoredFold,
    require_name,
)
from minutebook.store.url import open_store
from minutebook.tokens.models import ModelInfo
from minutebook.wire.chat import json_bytes, new_entries
from minutebook.wire.read import ClientInput, read_input

MessageInput: TypeAlias = Any
"""Text (a user message), a message dict, a list of them, or an object of the official openai or anthropic client."""
_LOG: Final = logging.getLogger("minutebook.conversation")
_ATTEMPTS: Final = 20
"""Maximum attempts to write while other processes write to the same conversation."""
_MAX_PAUSE_SECONDS: Final = 0.02
"""Maximum pause before the next attempt. It is random, so that two processes do not collide again."""


class AsyncConversation:
    """A conversation in a store: append messages, take views that fit the model, and ask why a message was not sent.

    `store` is a store, a database URL, or the name of a SQLite file; "memory:" forgets everything on exit. Without `id`,
    `recipient` continues that recipient's newest open conversation, or starts one. `system` is the first message of a new
    conversation.

    A view has at most `max_tokens` tokens: by default what the `model` reads, less the room for its answer. `manager`
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
        self._id = None if id is None else require_name("id", id)
        self._recipient = None if recipient is None else require_name("recipient", recipient)
        if id is None and recipient is None:
            self._id = str(uuid4())
        require_type("system", system, (str, NoneType), "the text of a system message")
        if provider is not None:
            rejected_kinds(provider)
        self._owns_store = not isinstance(store, ConversationStore)
        self.store = store if isinstance(store, ConversationStore) else open_store(store)
        self._system = system
        self._policy = PolicyBuilder(
            model=model, max_tokens=max_tokens, managers=manager, strategy=strategy, summarizer=summarizer, name=policy
        )
        self.provider: Provider = provider or self._policy.provider
        self._lock = TaskLock()
        """Held while the record is read or written: tasks of any thread may share the handle."""
        self._source: ViewSource | None = None
        """The record, once the conversation was read."""
        self._version = self._first = 0
        """The stored version, 0 if there is none yet, and the position of the first entry that was not purged."""
        self._own_calls: frozenset[str] = frozenset()
        """The ids of the newest tool calls that were appended with this handle."""
        self._renewed: RenewedLease | None = None
        self._last_request = 0
        self._sent: SentRequest | None = None
        """The newest request. The next append stores its usage in its minutes."""

    @property
    def id(self) -> str:
        """The conversation's id. With only a `recipient` it is known once the conversation is open."""
        if self._id is None:
            raise MissingSetting("the conversation's id", "open the conversation first: async with conversation")
        return self._id

    @property
    def _record(self) -> ViewSource:
        if self._source is None:
            raise MissingSetting("an open conversation", "write `async with conversation:`, or await open() first")
        return self._source

    def __len__(self) -> int:
        return len(self._record.record)

    @overload
    def __getitem__(self, position: int) -> Message: ...
    @overload
    def __getitem__(self, position: slice) -> list[Message]: ...
    def __getitem__(self, position: int | slice) -> Message | list[Message]:
        """The message at a position of the record. No fold is applied."""
        copy: Message | list[Message] = plain_copy(self._record.record[position])
        return copy

    def __iter__(self) -> Iterator[Message]:
        return map(plain_copy, self._record.record)

    def __bool__(self) -> bool:
        return True  # an empty conversation is still a conversation

    def __repr__(self) -> str:
        state = "not open" if self._source is None else f"{len(self._source.record):,} messages"
        name = repr(self._id) if self._id is not None else f"of {self._recipient!r}"
        return f"<{type(self).__name__} {name}: {state}>"

    async def open(self) -> Self:
        """Read the conversation from the store. Every other method does this if it is needed."""
        await self._read_locked()
        return self

    async def close(self) -> None:
        """Close the store, if this handle opened it."""
        if self._owns_store:
            await self.store.close()

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
        a warning is logged. The usage of a response is stored in the minutes of the newest view, or of `request`.

        Raises:
            InvalidMessage: a message is not understood.
            BrokenConversation: a message breaks the pairing of tool calls and results.
            LeaseLost: the lease of this handle was lost to another holder.
            IdempotencyConflict: the key was used with other messages.
        """
        require_type("request", request, (int, NoneType), "the number of a request")
        inputs = [read_input(message) for message in messages]
        # Copies: the caller may change its messages later, and the record must not change with them.
        new: list[Message] = [plain_copy(message) for part in inputs for message in part.messages]
        if not new:
            raise InvalidSetting("messages", [], "at least one message")
        response = next((part for part in inputs if part.usage is not None), None)
        if request is not None and response is None:
            raise InvalidSetting("request", request, "None, because no message is a response with its usage")
        async with self._lock:
            return await self._append_messages(new, response, idempotency_key, request)

    async def _append_messages(
        self, new: Sequence[Message], response: ClientInput | None, idempotency_key: str | None, request: int | None
    ) -> int:
        source = await self._open()
        for _ in range(_ATTEMPTS):
            start = len(source.record)
            interrupted = self._interrupted_results(source.record, new)
            added = [*self._first_messages(), *interrupted, *new]
            try:
                version = await self.store.append(
                    self.id,
                    self._entries(added, response),
                    recipient=None if self._version else self._recipient,
                    expected_version=self._version,
                    idempotency_key=idempotency_key,
                    fingerprint=None if idempotency_key is None else json_bytes(new),
                    documents=await self._minutes_of_answer(request, start, response),
                    lease=None if self._renewed is None else self._renewed.lease,
                )
            except ConversationErased:
                raise
            except (VersionConflict, ConversationNotFound):  # another process has appended, or the conversation expired
                await asyncio.sleep(random.uniform(0, _MAX_PAUSE_SECONDS))  # noqa: S311 - only spreads retries
                source = await self._synchronize()
                continue
            if version == self._version + 1:
                source.extend(added)
                self._version = version
                self._note_calls(new)
                self._warn_interrupted(interrupted)
                return len(source.record) - 1
            source = await self._synchronize()  # the key has been used: nothing was appended
            return _last_position(source.record, new)
        raise VersionConflict(self.id, (await self.store.header(self.id)).version, self._version)

    def _first_messages(self) -> list[Message]:
        if self._system is None or len(self._record.record):
            return []
        return [{"role": "system", "content": self._system}]

    def _interrupted_results(self, record: Transcript, new: Sequence[Message]) -> list[Message]:
        """Results for the calls that a process which was killed has left without, unless the new messages have them."""
        if not record.open_calls or (new and is_result(new[0])) or self._own_calls.issuperset(record.open_calls):
            return []
        return list(map(interrupted_result, record.open_calls))

    def _warn_interrupted(self, results: Sequence[Message]) -> None:
        if results:
            text = "conversation %s: tool calls of another process had no result and got an interrupted result: %s"
            _LOG.warning(text, self.id, ", ".join(map(result_id, results)))

    def _note_calls(self, messages: Sequence[Message]) -> None:
        """Remember the tool calls of stored messages: this handle gets their results, so they are not interrupted."""
        for message in messages:
            self._own_calls = frozenset(call_ids(message)) or self._own_calls

    def _entries(self, messages: Sequence[Message], response: ClientInput | None) -> list[ConversationEntry]:
        model = self._policy.model_name if response is None else response.model
        return new_entries(messages, provider=self.provider, model=model)

    async def _minutes_of_answer(
        self, number: int | None, position: int, response: ClientInput | None
    ) -> Sequence[NewDocument]:
        """The minutes of a request with the usage that the provider reported for it."""
        if response is None or (number is None and self._sent is None):
            return ()
        outcome = {
            "finish": response.finish,
            "usage": usage_json(usage_from(response.usage)),
            "answer": position,
        }
        if number is None or (self._sent is not None and self._sent.call.number == number):
            assert self._sent is not None
            self._sent.outcome = outcome
            return (self._sent.document(self._sent.stored_length or position),)
        _, document = await find_request(self.store, self.id, number)
        return (NewDocument(document.kind, document.id, {**document.body, **outcome}, replace=True),)

    async def view(self, *, tools: Sequence[Any] = (), provider: Provider | None = None) -> View:
        """The messages to send now, valid for the provider and within the budget. The request is numbered and recorded.

        `tools` are the tool definitions of the request, whose tokens count too.

        Raises:
            CannotFit: the messages that must be sent exceed the budget.
            MissingSetting: the conversation has no messages.
        """
        async with self._lock:
            return await self._record_view(tools, provider)

    async def _record_view(self, tools: Sequence[Any], provider: Provider | None) -> View:
        for _ in range(_ATTEMPTS):
            call = self._call(await self._synchronize(), tools, provider, number=self._last_request + 1)
            try:
                await call.begin()
            except DocumentExists:  # another process has taken the number
                self._last_request = await last_request_number(self.store, self.id)
                continue
            self._last_request += 1
            self._sent = call.request
            return call.view(number=self._last_request)
        raise DocumentExists("request", request_id(self.id, self._last_request + 1), self.id)

    async def fit(self, *, tools: Sequence[Any] = (), provider: Provider | None = None) -> View:
        """The view that `view` would return, without recording a request or storing a fold. Summaries are extracts.

        Raises:
            CannotFit: the messages that must be sent exceed the budget.
            MissingSetting: the conversation has no messages.
        """
        async with self._lock:
            call = self._call(await self._synchronize(), tools, provider)
            await call.preview()
            return call.view()

    def _call(
        self, source: ViewSource, tools: Sequence[Any], provider: Provider | None, *, number: int | None = None
    ) -> ModelCall:
        if not len(source.record):
            raise MissingSetting("messages", f"conversation {self.id!r} is empty; append a message first")
        if provider is not None:
            rejected_kinds(provider)
        return ModelCall(self.store, self._settings(tools, provider, number=number), source=source)

    def _settings(self, tools: Sequence[Any], provider: Provider | None, *, number: int | None = None) -> CallSettings:
        overhead_tokens = self._policy.tool_tokens(tools)
        return CallSettings(
            conversation=self.id,
            model=self._policy.model_name or "",
            policy=self._policy.policy,
            counter=self._policy.counter,
            run_id=request_id(self.id, number),
            request_id=request_id(self.id, number),
            provider=self.provider,
            rules=provider or self.provider,
            fails_open=False,
            lease=None if self._renewed is None else self._renewed.lease,
            overhead_tokens=overhead_tokens,
            number=number,
        )

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
            DocumentNotFound: there is no request with that number.
        """
        require_type("request", number, int, "the number of a request")
        source = await self._read_locked()
        number, document = await find_request(self.store, self.id, number)
        return Request.of(number, document, source.record)

    async def why(self, message: int, *, request: int) -> MessageReason:
        """Whether a message was sent in a request and, if not unchanged, the reason.

        Raises:
            DocumentNotFound: there is no request with that number.
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
        message in the prompt. The conversation is leased to the run.

        Raises:
            ConversationBusy: another process holds the lease of this conversation.
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
        """Like `run`, and yield the events: text deltas, tool calls, and `RunFinished` last. `str(event)` is one line.

        Closing the generator cancels the run; the text of an incomplete answer is stored.
        """
        async with (
            self._runner(adapter, request, tools, sections, session, limits) as runner,
            aclosing(runner.stream()) as events,
        ):
            async for event in events:
                yield event

    @asynccontextmanager
    async def _runner(
        self,
        adapter: ProviderAdapter,
        request: MessageInput | None,
        tools: Sequence[AnyTool | Callable[..., Any]],
        sections: Sequence[Section[Any]],
        session: Session | None,
        limits: RunLimits,
    ) -> AsyncIterator[ConversationRunner[str]]:
        messages = [] if request is None else read_input(request).messages
        if request is not None and len(messages) != 1:
            raise InvalidSetting("request", request, "one user message; append others before the run")
        record = (await self._read_locked()).record
        if not messages and not len(record):
            raise MissingSetting("request", f"conversation {self.id!r} is empty; pass the user message")
        system = (text_of(record[0]) if is_system(record[0]) else "") if len(record) else self._system or ""
        if any(isinstance(section, TaskHistorySection) for section in sections):
            self._policy.add_manager(StepHistoryManager())
        all_tools = [item if isinstance(item, Tool) else tool(item) for item in tools]
        prompt = text_prompt("conversation", system, all_tools, sections=sections)
        with Session() if session is None else nullcontext(session) as run_session:
            yield ConversationRunner(
                adapter=adapter,
                prompt=prompt,
                session=run_session,
                request=messages[0] if messages else None,
                conversation=self,
                resume=not messages,
                **limits,
            )

    def open_run(
        self, adapter: ProviderAdapter, *, session: SessionProtocol, tools: Sequence[Mapping[str, Any]] = ()
    ) -> AbstractAsyncContextManager[RunRecord]:
        """The record for one run of a `ConversationRunner`, which saves to it. It holds the conversation's lease.

        The stored plan is restored in the session, unless that has one.

        Raises:
            ConversationBusy: another process holds the lease of this conversation.
        """
        return self._open_run(adapter, session, tools)

    @asynccontextmanager
    async def _open_run(
        self, adapter: ProviderAdapter, session: SessionProtocol, tools: Sequence[Mapping[str, Any]]
    ) -> AsyncIterator[RunRecord]:
        async with AsyncExitStack() as stack:
            if self._renewed is None:
                await stack.enter_async_context(self._lease(LEASE_SECONDS, wait=True))
            source = await self._read_locked()
            interrupted = self._interrupted_results(source.record, ())
            self._warn_interrupted(interrupted)
            first_messages = [*self._first_messages(), *interrupted]
            source.extend(first_messages)
            run = RunRecord(
                self.store,
                replace(
                    self._settings(tools, adapter.provider),
                    model=adapter.model,
                    provider=adapter.name,
                    run_id=f"run_{uuid4().hex}",
                ),
                source,
                version=self._version,
                recipient=self._recipient,
                last_request=self._last_request,
                first_entries=new_entries(first_messages, provider=adapter.name, model=adapter.model),
            )
            await run.restore_plan(session)
            try:
                yield run
            except BaseException as error:
                await run.note_failure(error)
                raise
            finally:
                self._source = run.source if run.is_saved else None
                self._version, self._last_request, self._sent = run.version, run.last_request, None

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
            conversation=self.id,
            tenant=self.store.tenant,
        )
        result = await manager.apply(source.record)
        source.folds = storage.active
        return result

    async def folds(self) -> list[Fold]:
        """The folds that views apply, by position."""
        return list((await self._read_locked()).folds)

    async def undo(self, fold: Fold | str) -> StoredFold:
        """Undo a fold: views have its messages again. The strategy may fold them again when the window gets full.

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

    @asynccontextmanager
    async def _lease(self, seconds: float, *, wait: bool = False) -> AsyncIterator[None]:
        await self._open_locked()
        holder = f"conversation-{uuid4()}"
        async with hold_lease(self.store, self.id, holder, seconds=seconds, wait=wait) as renewed:
            self._renewed = renewed
            try:
                await self._read_locked()
                yield
            finally:
                self._renewed = None

    async def pin(self, position: int) -> None:
        """Include this message, with its exchange, in every view."""
        await self._open_locked()
        await self.store.pin(self.id, self._position(position))

    async def unpin(self, position: int) -> None:
        """Let views leave this message out again."""
        await self._open_locked()
        await self.store.unpin(self.id, self._position(position))

    def _position(self, position: int) -> int:
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
        other = AsyncConversation(header.id, store=self.store, system=self._system, provider=self.provider)
        other._policy = self._policy
        return await other.open()

    async def erase(self) -> ErasureReceipt:
        """Erase the conversation and its forks from the store, permanently."""
        await self._open_locked()
        receipt = await self.store.erase(conversation=self.id)
        self._source, self._version, self._sent = None, 0, None
        return receipt

    async def _read_locked(self) -> ViewSource:
        """Read what was added to the conversation, while no other task of this handle reads or writes."""
        async with self._lock:
            return await self._synchronize()

    async def _open_locked(self) -> ViewSource:
        return self._source if self._source is not None else await self._read_locked()

    async def _open(self) -> ViewSource:
        return self._source if self._source is not None else await self._synchronize()

    async def _synchronize(self) -> ViewSource:
        """Read what was added to the conversation since it was last read; everything the first time."""
        if self._id is None:
            assert self._recipient is not None
            self._id = await id_of_recipient(self.store, self._recipient)
        try:
            if self._source is not None and self._version and await self._read_new(self._source):
                return self._source
            loaded = await self.store.load(self._id)
        except ConversationErased:
            raise
        except ConversationNotFound:  # new, or expired
            self._version, self._last_request, self._sent = 0, 0, None
            self._source = ViewSource(None, (), counter=self._policy.counter, whole_record=True)
            return self._source
        if self._recipient is not None and loaded.conversation.recipient != self._recipient:
            expected = f"{loaded.conversation.recipient!r}, the recipient of conversation {self._id!r}"
            raise InvalidSetting("recipient", self._recipient, expected)
        self._version, self._first = loaded.conversation.version, loaded.conversation.first
        self._source = ViewSource(loaded, (), counter=self._policy.counter, whole_record=True)
        self._last_request = await last_request_number(self.store, self._id)
        return self._source

    async def _read_new(self, source: ViewSource) -> bool:
        """Add new entries, folds and pins to the record. Return False if the whole record must be read again."""
        length = len(source.record)
        loaded = await self.store.load(self.id, since=length, folded=True)
        header = loaded.conversation
        new = [
            (position, message)
            for position, message in zip(loaded.positions, loaded.messages, strict=True)
            if position >= length
        ]
        is_complete = [position for position, _ in new] == list(range(length, header.length))
        if not is_complete or header.first != self._first or header.length < length:
            return False
        source.extend([message for _, message in new])
        source.set_pins(loaded.pins)
        source.folds = loaded.folds
        self._version = header.version
        return True


async def id_of_recipient(store: ConversationStore, recipient: str) -> str:
    """The id of the recipient's newest conversation that is not closed or a fork, else a new id: the recipient if free."""
    cursor = None
    while True:
        page = await store.list(recipient=recipient, cursor=cursor)
        for header in page.items:
            if header.status is not ConversationStatus.CLOSED and header.origin is None:
                return header.id
        if (cursor := page.cursor) is None:
            break
    try:
        header = await store.header(recipient)
    except ConversationErased:
        pass
    except ConversationNotFound:
        return recipient
    else:
        is_new = header.recipient == recipient and header.status is not ConversationStatus.CLOSED
        if is_new and header.origin is None:  # another process has created it since the list was read
            return recipient
    return f"{recipient[:400]}.{uuid4().hex}"


def _last_position(record: Sequence[Message], messages: Sequence[Message]) -> int:
    """The position of the last message of the newest occurrence of `messages` in the record."""
    count = len(messages)
    ends = range(len(record) - 1, count - 2, -1)
    return next((end for end in ends if list(record[end - count + 1 : end + 1]) == list(messages)), len(record) - 1)
