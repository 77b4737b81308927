"""Events, from whoever publishes them to whoever listens, in one process and at once.

An event that has a `session_id` is for that session; one that has no such field is for everybody. A session listens
with its id, so an event costs as much as those who hear it, however many sessions share the bus.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from threading import RLock
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from minutebook.errors import EventFailed

E = TypeVar("E")
Handler: TypeAlias = Callable[[E], object]
Unsubscribe: TypeAlias = Callable[[], None]


@dataclass(slots=True, frozen=True)
class HandlerFailure:
    """A handler that raised, and what it raised."""

    handler: Handler[Any]
    error: Exception


@dataclass(slots=True, frozen=True)
class PublishResult:
    """What became of an event."""

    event: object
    handled: int
    """How many handlers took it without failing."""
    errors: tuple[HandlerFailure, ...] = ()
    """Those that failed, in the order in which they ran."""

    def raise_errors(self) -> None:
        """Do nothing if every handler took the event.

        Raises:
            EventFailed: one or more did not.
        """
        if self.errors:
            raise EventFailed(type(self.event).__name__, [failure.error for failure in self.errors])


@dataclass(slots=True, eq=False)
class _Listener:
    number: int
    handler: Handler[Any]
    listening: bool = True


class InProcessEventBus:
    """Hands each event to the handlers of exactly its type, in the order in which they subscribed.

    Publishing is a plain call on the caller's thread: when it returns, every handler has run. An event that a handler
    publishes is handled before that handler returns. A handler that subscribes meanwhile hears the next event; one
    that leaves meanwhile hears nothing more.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._count = 0
        self._listeners: dict[type, dict[UUID | None, dict[_Listener, None]]] = {}

    def subscribe(self, event_type: type[E], handler: Handler[E], *, session_id: UUID | None = None) -> Unsubscribe:
        """Hear every event of a type, or with `session_id` only that session's; call what is returned to stop.

        Events that have no field `session_id` are heard either way.
        """
        with self._lock:
            self._count += 1
            listener = _Listener(self._count, handler)
            self._listeners.setdefault(event_type, {}).setdefault(session_id, {})[listener] = None

        def unsubscribe() -> None:
            with self._lock:
                if listener.listening:
                    listener.listening = False
                    self._forget(listener, event_type, session_id)

        return unsubscribe

    def publish(self, event: object, /) -> PublishResult:
        """Run every handler, also when one fails; look at the result or call its `raise_errors`."""
        handled, errors = 0, []
        for listener in self._hearing(event):
            if not listener.listening:
                continue
            try:
                listener.handler(event)
            except Exception as error:  # noqa: BLE001 - one handler's bug is not the next one's; the result carries it
                errors.append(HandlerFailure(listener.handler, error))
            else:
                handled += 1
        return PublishResult(event, handled, tuple(errors))

    def subscriber_count(self, event_type: type | None = None) -> int:
        """How many listen: to one type, or to all of them together."""
        with self._lock:
            kinds = self._listeners.values() if event_type is None else [self._listeners.get(event_type, {})]
            return sum(len(group) for kind in kinds for group in kind.values())

    def _hearing(self, event: object) -> list[_Listener]:
        with self._lock:
            groups = self._listeners.get(type(event), {})
            wanted: Iterable[dict[_Listener, None]] = groups.values()
            if hasattr(event, "session_id"):
                wanted = [groups.get(address, {}) for address in {None, event.session_id}]
            found = [listener for group in wanted for listener in group]
        return sorted(found, key=attrgetter("number"))

    def _forget(self, listener: _Listener, event_type: type, session_id: UUID | None) -> None:
        groups = self._listeners[event_type]
        del groups[session_id][listener]
        if not groups[session_id]:
            del groups[session_id]
        if not groups:
            del self._listeners[event_type]
