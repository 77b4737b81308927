"""The in-process event bus.

An event with a `session_id` is delivered to that session only; an event without that field is delivered to all sessions.
Sessions subscribe with their id, so the cost of an event does not depend on how many other sessions share the bus.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from threading import RLock
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from minutebook.errors import EventFailed

E = TypeVar("E")
EventHandler: TypeAlias = Callable[[E], object]
Unsubscribe: TypeAlias = Callable[[], None]


@dataclass(slots=True, frozen=True)
class HandlerFailure:
    """A handler that raised, and its error."""

    handler: EventHandler[Any]
    error: Exception


@dataclass(slots=True, frozen=True)
class PublishResult:
    """How many handlers of an event succeeded, and which failed."""

    event: object
    handled: int
    """Number of handlers that ran without an error."""
    errors: tuple[HandlerFailure, ...] = ()
    """The failed handlers, in the order in which they ran."""

    def raise_errors(self) -> None:
        """Raise if a handler failed.

        Raises:
            EventFailed: one or more handlers failed.
        """
        if self.errors:
            raise EventFailed(type(self.event).__name__, [failure.error for failure in self.errors])


@dataclass(slots=True, eq=False)
class _Subscription:
    number: int
    """The order of the subscriptions."""
    handler: EventHandler[Any]
    is_active: bool = True


class InProcessEventBus:
    """Calls the handlers of an event's exact type, in the order in which they subscribed.

    Handlers run on the publisher's thread, before `publish` returns; so do the handlers of an event that a handler
    publishes. While an event is published, a new handler does not get that event, and a handler that unsubscribes is
    no longer called.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._last_number = 0
        self._subscriptions: dict[type, dict[UUID | None, dict[_Subscription, None]]] = {}
        """Event type → session id (None for all sessions) → subscriptions, in an ordered set."""

    def subscribe(
        self, event_type: type[E], handler: EventHandler[E], *, session_id: UUID | None = None
    ) -> Unsubscribe:
        """Call the handler for every event of this type, or with `session_id` only for the events of that session.

        Events without a field `session_id` are delivered in both cases. Returns the function that unsubscribes.
        """
        with self._lock:
            self._last_number += 1
            subscription = _Subscription(self._last_number, handler)
            self._subscriptions.setdefault(event_type, {}).setdefault(session_id, {})[subscription] = None

        def unsubscribe() -> None:
            with self._lock:
                if subscription.is_active:
                    subscription.is_active = False
                    self._remove(subscription, event_type, session_id)

        return unsubscribe

    def publish(self, event: object, /) -> PublishResult:
        """Run every handler of the event, even if one fails. Failures are in the result; `raise_errors` raises them."""
        handled, errors = 0, []
        for subscription in self._subscriptions_for(event):
            if not subscription.is_active:
                continue
            try:
                subscription.handler(event)
            except Exception as error:  # noqa: BLE001 - a failing handler must not stop the others
                errors.append(HandlerFailure(subscription.handler, error))
            else:
                handled += 1
        return PublishResult(event, handled, tuple(errors))

    def subscriber_count(self, event_type: type | None = None) -> int:
        """The number of subscriptions to an event type, or to all types."""
        with self._lock:
            by_type = self._subscriptions
            selected = by_type.values() if event_type is None else [by_type.get(event_type, {})]
            return sum(len(group) for by_session in selected for group in by_session.values())

    def _subscriptions_for(self, event: object) -> list[_Subscription]:
        with self._lock:
            by_session = self._subscriptions.get(type(event), {})
            groups: Iterable[dict[_Subscription, None]] = by_session.values()
            if hasattr(event, "session_id"):
                groups = [by_session.get(session_id, {}) for session_id in {None, event.session_id}]
            subscriptions = [subscription for group in groups for subscription in group]
        return sorted(subscriptions, key=attrgetter("number"))

    def _remove(self, subscription: _Subscription, event_type: type, session_id: UUID | None) -> None:
        by_session = self._subscriptions[event_type]
        del by_session[session_id][subscription]
        if not by_session[session_id]:
            del by_session[session_id]
        if not by_session:
            del self._subscriptions[event_type]
