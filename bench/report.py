"""The report of the benchmark: tables, targets that are met or missed, and figures."""

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Table:
    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.rows:
            return "\n".join([self.title, *self.notes])
        rows = [self.columns, *self.rows]
        full = [row for row in rows if len(row) == len(self.columns)]
        widths = [max(map(len, column)) for column in zip(*full, strict=True)]
        widths[0] = max(len(row[0]) for row in rows)
        lines = [self._line(row, widths) for row in rows]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([self.title, *lines, *self.notes])

    @staticmethod
    def _line(row: Sequence[str], widths: list[int]) -> str:
        """A row as text. The first column is left-aligned, the others are figures. A short row ends with a remark."""
        if len(row) < len(widths):
            return f"{row[0]:<{widths[0]}}  {' '.join(row[1:])}"
        cells = [
            f"{row[0]:<{widths[0]}}",
            *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        return "  ".join(cells)


@dataclass(frozen=True)
class Target:
    """A performance target, and the measured value."""

    what: str
    measured: str
    met: bool

    def __str__(self) -> str:
        return f"{'ok    ' if self.met else 'MISSED'}  {self.what}: {self.measured}"


@dataclass
class Part:
    """The results of one part of the benchmark."""

    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        blocks = [str(table) for table in self.tables]
        return "\n\n".join([*blocks, "\n".join(map(str, self.targets))] if self.targets else blocks)


def comma_separated(valid_names: Collection[str]) -> Callable[[str], list[str]]:
    """A parser for a command line argument that lists some of the valid names."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(valid_names):
            problem = f"unknown part {', '.join(sorted(unknown))}; expected some of {', '.join(valid_names)}"
            raise argparse.ArgumentTypeError(problem)
        return names

    return parse


def progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def time_of(seconds: float) -> str:
    """A time with a suitable unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:,.0f} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 10 else f"{ratio:.2f}x"
