"""Progress bars on stderr for long reads and writes, shown only on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

MIN_BYTES = 4_000_000
"""Minimum size of a file for a progress bar. Smaller files are read too fast for a bar to be useful."""
MIN_COUNT = 20_000
"""Minimum number of messages or database pages for a progress bar."""


@contextmanager
def read_progress(source: str, *, prints_during_progress: bool = True) -> Iterator[Callable[[int], None] | None]:
    """Yield a function to call with the number of bytes read, or None without a bar.

    `prints_during_progress`: whether the command prints to stdout while the bar is shown.
    """
    size = None
    with suppress(OSError):
        size = Path(source).stat().st_size if source != "-" else None
    if (size or 0) < MIN_BYTES or not _is_visible(prints_during_progress=prints_during_progress):
        yield None
        return
    with bytes_progress(f"reading {Path(source).name}", size or 0) as advance:
        yield advance


@contextmanager
def bytes_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of bytes read. It does nothing if stderr is not a terminal."""
    if not _is_visible(prints_during_progress=False):
        yield lambda _count: None
        return
    from rich.progress import DownloadColumn

    with _bar(title, total, DownloadColumn()) as advance:
        yield advance


@contextmanager
def count_progress(
    title: str, total: int, *, prints_during_progress: bool = True, min_total: int = MIN_COUNT
) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items done. Without a bar it does nothing.

    There is no bar if `total` is less than `min_total`.
    """
    if total < min_total or not _is_visible(prints_during_progress=prints_during_progress):
        yield lambda _count: None
        return
    from rich.progress import MofNCompleteColumn

    with _bar(title, total, MofNCompleteColumn()) as advance:
        yield advance


def _is_visible(*, prints_during_progress: bool) -> bool:
    """Whether a bar may be shown: stderr is a terminal, and the command does not print to a terminal meanwhile."""
    return sys.stderr.isatty() and not (prints_during_progress and sys.stdout.isatty())


@contextmanager
def _bar(title: str, total: int | None, *columns: "ProgressColumn") -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    all_columns = (TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn())
    console = Console(stderr=True)
    # rich would redirect stdout to stderr, and with it the command's data.
    with Progress(*all_columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)
