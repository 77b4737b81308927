"""Which comment belongs to which line of code.

A comment on a line of code stays beside it. One on a line of its own belongs to the line of code below it, unless it is
indented like the block that has just ended: then it is the end of that block.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lark.lexer import Token

from minutebook.dsl.indentation import depth_of
from minutebook.dsl.syntax import NO_TRIVIA, Trivia


@dataclass
class Comments:
    """The comments of a program, by the number of the line they belong to."""

    of_line: dict[int, Trivia] = field(default_factory=dict)
    after_block: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """By the number of the line that opens the block; 0 is the program."""

    def of(self, line: int) -> Trivia:
        return self.of_line.get(line, NO_TRIVIA)

    def below(self, line: int) -> tuple[str, ...]:
        return self.after_block.get(line, ())


def comments_in(ends: Iterable[Token], *, leading: bool) -> Comments:
    """The comments that the ends of lines carry, in the order in which these stand.

    `leading` says that no code stands before the first of them.
    """
    found = Comments()
    above: dict[int, list[str]] = {}
    beside: dict[int, str] = {}
    blanks: set[int] = set()
    blocks = [(0, 0)]  # how deep a block is, and the line that opens it
    line, depth = 0 if leading else 1, 0
    for end in ends:
        remark, *rows = end.split("\n")
        if line:
            beside[line] = remark.strip()
        else:
            rows.insert(0, remark)
        indentation = rows.pop()
        following, deeper = end.end_line or 0, depth_of(indentation)
        if deeper > depth and line:
            blocks.append((deeper, line))
        kept = _shared_out(rows, blocks, deeper, found)
        line, depth = following, deeper
        while blocks[-1][0] > depth:
            blocks.pop()
        if kept and not kept[0]:
            blanks.add(line)
        above[line] = kept
    # The text ends with a line break, so what seems to stand above one more line is the end of the program.
    found.after_block[0] = _tidy(above.pop(line, []), end_too=True)
    for number in {*above, *beside}:
        found.of_line[number] = Trivia(_tidy(above.get(number, [])), beside.get(number, ""), number in blanks)
    return found


def _shared_out(rows: Sequence[str], blocks: list[tuple[int, int]], depth: int, found: Comments) -> list[str]:
    """Give ended blocks the comments that are indented like them; return the rows for the next line of code."""
    ended = [block for block in blocks if block[0] > depth]
    kept: list[str] = []
    given: dict[int, list[str]] = {}
    for row in rows:
        words = row.lstrip(" \t")
        deep = depth_of(row[: len(row) - len(words)])
        while words and ended and ended[-1][0] > deep:
            ended.pop()
        if ended:
            given.setdefault(ended[-1][1], []).append(words.rstrip())
        else:
            kept.append(words.rstrip())
    for opener, lines in given.items():
        if lines and not lines[-1]:
            kept.insert(0, "")
        if tidy := _tidy(lines, end_too=True):
            found.after_block[opener] = tidy
    return kept


def _tidy(rows: Sequence[str], *, end_too: bool = False) -> tuple[str, ...]:
    """Comments without empty lines before them, and never two empty lines together."""
    tidy: list[str] = []
    for row in rows:
        if row or (tidy and tidy[-1]):
            tidy.append(row)
    while end_too and tidy and not tidy[-1]:
        tidy.pop()
    return tuple(tidy)
