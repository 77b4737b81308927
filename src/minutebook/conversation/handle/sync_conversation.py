"""`Conversation`: the methods of `AsyncConversation` for code that is not async.

The methods are derived from those of `AsyncConversation`, so the two cannot differ; their signatures for type checkers are
in `sync_conversation.pyi`, which `make docs` writes. Most calls run in the caller's thread. Those that may call a model or
continue between two calls run in a background thread with an event loop, which all conversations of a process share.
"""

import asyncio
import inspect
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from minutebook.conversation.handle.async_conversation import AsyncConversation
from minutebook.conversation.handle.thread_loop import run_in_this_thread
from minutebook.record.message import Provider
from minutebook.store.base import ConversationStore
from minutebook.store.loop_thread import run_sync

T = TypeVar("T")
_IN_BACKGROUND: Final = frozenset({"run", "compact"})
"""Methods that may call a model."""
_VIEWS: Final = frozenset({"view", "fit"})
"""Methods that call the strategy, if there is one. It may call a model."""
_has_warned = False


def run(coroutine: Coroutine[Any, Any, T], *, in_background: bool = True) -> T:
    """Run a coroutine and return its result, on the background event loop or in this thread.

    If this thread runs an event loop, such as a notebook's, it cannot run another one, so the background loop is used.
    """
    if _is_in_event_loop():
        _warn_once()
    elif not in_background:
        return run_in_this_thread(coroutine)
    return run_sync(coroutine)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _warn_once() -> None:
    """Warn if the caller is a coroutine: its event loop waits until the call returns."""
    global _has_warned  # noqa: PLW0603 - warn once for the process
    if _has_warned:
        return
    _has_warned = True
    if asyncio.current_task() is not None:
        message = (
            "Conversation blocks the running event loop; in async code use AsyncConversation and await its methods"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=4)


class Conversation:
    """A conversation in a store: append messages, take views that fit the model, and ask why a message was not sent."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._async = AsyncConversation(*args, **settings)
        run(self._async.open(), in_background=False)

    def __len__(self) -> int:
        return len(self._async)

    def __getitem__(self, position: int | slice) -> Any:
        return self._async[position]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._async)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncConversation", type(self).__name__, 1)

    @property
    def store(self) -> ConversationStore:
        return self._async.store

    @property
    def provider(self) -> Provider:
        return self._async.provider

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._async.close(), in_background=False)  # in the loop that has opened the store's connections

    def open_run(self, *args: Any, **settings: Any) -> AbstractAsyncContextManager[Any]:
        return self._async.open_run(*args, **settings)  # for a runner, which is async


def _sync_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """The synchronous form of a method: of a coroutine, an asynchronous generator or an asynchronous context manager."""
    name = method.__name__
    if inspect.iscoroutinefunction(method):

        @wraps(method)
        def call(self: Conversation, *args: Any, **settings: Any) -> Any:
            has_strategy = self._async._policy.strategy is not None  # noqa: SLF001 - our own class
            in_background = name in _IN_BACKGROUND or (name in _VIEWS and has_strategy)
            return _sync_value(run(method(self._async, *args, **settings), in_background=in_background), self)

    elif inspect.isasyncgenfunction(method):

        @wraps(method)
        def call(self: Conversation, *args: Any, **settings: Any) -> Any:
            return _iterate(method(self._async, *args, **settings))

    else:  # made by asynccontextmanager

        @wraps(method)
        def call(self: Conversation, *args: Any, **settings: Any) -> Any:
            return _enter(method(self._async, *args, **settings), self)

    return call


def _sync_value(value: Any, conversation: Conversation) -> Any:
    """A returned handle as a `Conversation`; every other value unchanged."""
    if not isinstance(value, AsyncConversation):
        return value
    if value is conversation._async:  # noqa: SLF001 - our own class
        return conversation
    other = object.__new__(Conversation)
    other._async = value
    return other


def _iterate(events: AsyncIterator[T]) -> Iterator[T]:
    close: Callable[[], Coroutine[Any, Any, None]] | None = getattr(events, "aclose", None)
    try:
        while True:
            try:
                yield run(_next(events))
            except StopAsyncIteration:
                return
    finally:
        if close is not None:
            run(close())


async def _next(events: AsyncIterator[T]) -> T:
    return await anext(events)


@contextmanager
def _enter(context: AbstractAsyncContextManager[Any], conversation: Conversation) -> Iterator[Conversation]:
    run(_aenter(context))
    try:
        yield conversation
    except BaseException as error:
        if not run(_aexit(context, error)):
            raise
    else:
        run(_aexit(context, None))


async def _aenter(context: AbstractAsyncContextManager[Any]) -> Any:
    return await context.__aenter__()


async def _aexit(context: AbstractAsyncContextManager[Any], error: BaseException | None) -> bool | None:
    if error is None:
        return await context.__aexit__(None, None, None)
    return await context.__aexit__(type(error), error, error.__traceback__)


def _sync_property(name: str, member: property) -> property:
    def read(self: Conversation) -> Any:
        return getattr(self._async, name)

    return property(read, doc=member.__doc__)


def _add_methods() -> None:
    for name, member in vars(AsyncConversation).items():
        if name in vars(Conversation):
            continue
        if isinstance(member, property) and not name.startswith("_"):
            setattr(Conversation, name, _sync_property(name, member))
        elif inspect.isfunction(member) and not name.startswith("_"):
            setattr(Conversation, name, _sync_method(member))
    Conversation.__init__.__wrapped__ = AsyncConversation.__init__  # type: ignore[attr-defined] # its signature
    Conversation.__doc__ = (AsyncConversation.__doc__ or "").replace("async with", "with")


_add_methods()
