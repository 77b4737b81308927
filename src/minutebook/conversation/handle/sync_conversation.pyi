# Written by docs/generate.py from AsyncConversation; change that.
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.events import RunEvent
from minutebook.agent.messages import PromptResponse
from minutebook.compaction.manager import CompactionResult
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer
from minutebook.conversation.agent_call import RunLimits, RunRecord
from minutebook.conversation.handle.async_conversation import MessageInput
from minutebook.conversation.handle.calls import ConversationCalls
from minutebook.conversation.requests import MessageReason, Request
from minutebook.history.protocol import HistoryManager, SessionProtocol
from minutebook.history.view import View
from minutebook.prompt.section import Section
from minutebook.prompt.tools import AnyTool
from minutebook.record.fold import Fold
from minutebook.record.message import Message, Provider
from minutebook.session.state import Session
from minutebook.store.base import ConversationStore
from minutebook.store.types import ConversationHeader, ErasureReceipt, StoredFold
from minutebook.tokens.models import ModelInfo
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack, overload

class Conversation(ConversationCalls):
    store: ConversationStore
    provider: Provider

    def __init__(
        self,
        id: str | None = None,
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
    ) -> None: ...
    @property
    def id(self) -> str: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, position: int) -> Message: ...
    @overload
    def __getitem__(self, position: slice) -> list[Message]: ...
    def __iter__(self) -> Iterator[Message]: ...
    def __bool__(self) -> bool: ...
    def open(self) -> Self: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def header(self) -> ConversationHeader: ...
    def append(
        self, *messages: MessageInput, idempotency_key: str | None = None, request: int | None = None
    ) -> int: ...
    def view(self, *, tools: Sequence[Any] = (), provider: Provider | None = None) -> View: ...
    def fit(self, *, tools: Sequence[Any] = (), provider: Provider | None = None) -> View: ...
    def requests(self, last: int = 20) -> list[Request]: ...
    def request(self, number: int) -> Request: ...
    def why(self, message: int, *, request: int) -> MessageReason: ...
    def run(
        self,
        adapter: ProviderAdapter,
        request: MessageInput | None = None,
        *,
        tools: Sequence[AnyTool | Callable[..., Any]] = (),
        sections: Sequence[Section[Any]] = (),
        session: Session | None = None,
        **limits: Unpack[RunLimits],
    ) -> PromptResponse[str]: ...
    def stream(
        self,
        adapter: ProviderAdapter,
        request: MessageInput | None = None,
        *,
        tools: Sequence[AnyTool | Callable[..., Any]] = (),
        sections: Sequence[Section[Any]] = (),
        session: Session | None = None,
        **limits: Unpack[RunLimits],
    ) -> Iterator[RunEvent]: ...
    def open_run(
        self, adapter: ProviderAdapter, *, session: SessionProtocol, tools: Sequence[Mapping[str, Any]] = ()
    ) -> AbstractAsyncContextManager[RunRecord]: ...
    def compact(self, strategy: HistoryStrategy | str | None = None) -> CompactionResult: ...
    def folds(self) -> list[Fold]: ...
    def undo(self, fold: Fold | str) -> StoredFold: ...
    def lease(self, seconds: float = 60) -> AbstractContextManager[Self]: ...
    def pin(self, position: int) -> None: ...
    def unpin(self, position: int) -> None: ...
    def fork(self, new_id: str | None = None, *, at: int | None = None) -> Conversation: ...
    def erase(self) -> ErasureReceipt: ...
