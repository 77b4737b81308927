"""What a store does when its process forks: a child must not share connections, threads and locks with its parent.

A database sees both processes as one client. SQLite even loses commits: a child that has inherited an open file opens it
again without new locks, so the parent deletes the write-ahead log that the child writes to.
"""

import os
import threading
from typing import Any, Final
from weakref import WeakSet


class ForkAware:
    """An object that a forked process inherits. Call `ForkAware.__init__` last."""

    def __init__(self) -> None:
        with _lock:
            _OBJECTS.add(self)

    def before_fork(self) -> None:
        """Prepare, in the thread that forks."""

    def after_fork_in_parent(self) -> None:
        """Continue in the parent, also if `before_fork` has raised."""

    def after_fork_in_child(self) -> None:
        """Continue in the child, which has only the thread that forked. Some programs fork without `before_fork`."""


_OBJECTS: Final[WeakSet[ForkAware]] = WeakSet()
_lock = threading.Lock()
"""Held during a fork: threads fork one after the other, and no object is created meanwhile."""
_INHERITED: Final[list[dict[str, Any]]] = []
"""The parent's connections and threads, in a child. They are kept, because closing them would affect the parent."""


def _call_all(method: str) -> None:
    """Call a method of every object, also if it raises for one. Python prints the first error and continues the fork."""
    errors: list[BaseException] = []
    for item in list(_OBJECTS):
        try:
            getattr(item, method)()
        except BaseException as error:  # noqa: BLE001 - such as Ctrl-C; the other objects must be prepared too
            errors.append(error)
    if errors:
        raise errors[0]


def _before() -> None:
    _lock.acquire()
    _call_all("before_fork")


def _after_in_parent() -> None:
    try:
        _call_all("after_fork_in_parent")
    finally:
        _lock.release()


def _after_in_child() -> None:
    global _lock  # noqa: PLW0603 - the parent's lock may be held by a thread that the child does not have
    _lock = threading.Lock()
    _INHERITED.extend(vars(item).copy() for item in list(_OBJECTS))
    _call_all("after_fork_in_child")


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
