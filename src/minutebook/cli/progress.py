"""A bar on stderr while a large input is read, for people only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

WORTH_A_BAR = 4_000_000
"""Bytes; less than this is read before anybody would see the bar."""


@contextmanager
def progress(source: str) -> Iterator[Callable[[int], None] | None]:
    """Something to tell how many bytes were read, or None where nobody watches.

    Where the data itself goes to the same terminal it is progress enough, and a bar would run through it.
    """
    size = None
    with suppress(OSError):
        size = Path(source).stat().st_size if source != "-" else None
    if not sys.stderr.isatty() or sys.stdout.isatty() or (size or 0) < WORTH_A_BAR:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    # Redirecting stdout would put data on stderr.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task(Path(source).name, total=size)
        yield lambda count: bar.advance(task, count)
