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
        _OBJECTS.add(self)

    def before_fork(self) -> None:
        """Prepare, in the thread that forks."""

    def after_fork_in_parent(self) -> None:
        """Continue in the parent."""

    def after_fork_in_child(self) -> None:
        """Continue in the child, which has only the thread that forked."""


_OBJECTS: Final[WeakSet[ForkAware]] = WeakSet()
_LOCK: Final = threading.Lock()
"""Held during a fork, so that threads fork one after the other."""
_participants: list[ForkAware] = []
"""The objects that take part in the current fork."""
_INHERITED: Final[list[dict[str, Any]]] = []
"""The parent's connections and threads, in a child. They are kept, because closing them would affect the parent."""


def _before() -> None:
    _LOCK.acquire()
    for item in list(_OBJECTS):
        item.before_fork()
        _participants.append(item)


def _after_in_parent() -> None:
    while _participants:
        _participants.pop().after_fork_in_parent()
    _LOCK.release()


def _after_in_child() -> None:
    while _participants:
        item = _participants.pop()
        _INHERITED.append(vars(item).copy())
        item.after_fork_in_child()
    _LOCK.release()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
