"""Something to write, who waits for it, and how they are told."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minutebook.store.sqlite_unit import Unit


@dataclass(slots=True, eq=False)
class Job:
    """Something to write, and who waits for it."""

    work: Callable[[Unit], Any]
    answer: "asyncio.Future[Any] | None" = None
    """Who waits for it; nobody, if it is a chore, or if who wants it carries it out."""
    keeps: bool = True
    """Whether it keeps up to date what is known."""
    alone: bool = False
    """Whether it must run outside of any transaction."""
    light: bool = False
    """Whether it may be lost in a power cut, so that it need not wait for the disk; others see it at once."""
    brief: bool = False
    """Whether it touches so few rows that the caller's own thread may carry it out."""

    @property
    def is_wanted(self) -> bool:
        return self.answer is None or not self.answer.cancelled()


Outcome = tuple[Job, Any, Exception | None]


def answer(outcomes: Sequence[Outcome]) -> None:
    """Wake those who wait, from another thread, with one call for each of their loops."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome[0].answer is not None:
            by_loop.setdefault(outcome[0].answer.get_loop(), []).append(outcome)
    for loop, mine in by_loop.items():
        try:
            loop.call_soon_threadsafe(resolve, mine)
        except RuntimeError:  # the loop was closed: nobody waits any more
            continue


def resolve(outcomes: Sequence[Outcome]) -> None:
    """Wake those who wait, in their own loop."""
    for job, result, error in outcomes:
        if job.answer is None or job.answer.done():
            continue
        if error is None:
            job.answer.set_result(result)
        else:
            job.answer.set_exception(error)
