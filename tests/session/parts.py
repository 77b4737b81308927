"""A small domain to put into sessions: a counter, notes, a plan; and entries to record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import Enum, Flag
from typing import Any, Literal, NewType
from uuid import UUID

from minutebook import ConversationEntry, ConversationRecorded
from minutebook.record import MessageRole

MONDAY = datetime(2025, 1, 6, 9, tzinfo=UTC)
RUN, OTHER_RUN = UUID(int=1), UUID(int=2)


@dataclass(frozen=True)
class Total:
    amount: int


@dataclass(frozen=True)
class Note:
    text: str
    number: int = 0


@dataclass(frozen=True)
class Added:
    amount: int


@dataclass(frozen=True)
class Noted:
    text: str


@dataclass(frozen=True)
class Addressed:
    session_id: UUID | None
    amount: int = 1


class Mood(Enum):
    CALM = 1
    TENSE = ("very", 2)


class Rights(Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Step:
    title: str
    status: Literal["open", "done", 3] | None = "open"
    children: tuple["Step", ...] = ()


Owner = NewType("Owner", str)


@dataclass(frozen=True)
class Plan:
    objective: str
    id: UUID
    at: datetime
    steps: tuple[Step, ...] = ()
    mood: Mood | None = None
    size: int | str | float | None = None
    target: Step | Note | tuple[int, ...] = ()
    pair: tuple[int, str] = (0, "")
    weight: float = 0.0
    labels: Mapping[str, int] = field(default_factory=dict)
    by_id: dict[UUID, Step] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    anything: Any = None
    seen: Sequence[date] = ()
    took: timedelta = timedelta()
    raw: bytes = b""
    rights: Rights = Rights.READ
    owner: Owner = Owner("nobody")
    is_urgent: bool = False


def entry(number, *, run=RUN, text="hello"):
    return ConversationEntry(MessageRole.USER, text, run, number, MONDAY)


def recorded(session_id, number=0, *, run=RUN):
    return ConversationRecorded(entry(number, run=run), session_id, MONDAY)


def add(values, event, *, context):
    """Totals: the sum so far."""
    return (Total((values[-1].amount if values else 0) + event.amount),)


def note(values, event, *, context):
    """Notes: the plain way of 000, a whole new slice."""
    return (*values, Note(event.text))


def fail(values, event, *, context):
    raise ZeroDivisionError("no")
