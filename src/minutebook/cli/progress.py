"""A bar on stderr while something large is read or written, for people only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

WORTH_A_BAR = 4_000_000
"""Bytes; less than this is read before anybody would see the bar."""
WORTH_COUNTING = 20_000
"""Messages or pages; the same."""


@contextmanager
def progress(source: str, *, silent: bool = False) -> Iterator[Callable[[int], None] | None]:
    """Something to tell how many bytes were read, or None where nobody watches; `silent` commands print nothing yet."""
    size = None
    with suppress(OSError):
        size = Path(source).stat().st_size if source != "-" else None
    if (size or 0) < WORTH_A_BAR or not _is_watched(silent=silent):
        yield None
        return
    from rich.progress import DownloadColumn

    with _bar(f"reading {Path(source).name}", size, DownloadColumn()) as advance:
        yield advance


@contextmanager
def counting(
    title: str, total: int, *, silent: bool = False, least: int = WORTH_COUNTING
) -> Iterator[Callable[[int], None]]:
    """Something to tell how many of so many are done; fewer than `least` are done before anybody would see it."""
    if total < least or not _is_watched(silent=silent):
        yield lambda _count: None
        return
    from rich.progress import MofNCompleteColumn

    with _bar(title, total, MofNCompleteColumn()) as advance:
        yield advance


def _is_watched(*, silent: bool) -> bool:
    """Whether somebody sees a bar.

    Where the data itself goes to the same terminal it is progress enough, and a bar would run through it.
    """
    return sys.stderr.isatty() and (silent or not sys.stdout.isatty())


@contextmanager
def _bar(title: str, total: int | None, *columns: "ProgressColumn") -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    shown = (TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn())
    console = Console(stderr=True)
    # Redirecting stdout would put data on stderr.
    with Progress(*shown, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)
