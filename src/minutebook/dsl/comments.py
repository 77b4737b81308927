"""Assigns the comments of a program to its lines of code.

A comment after code belongs to that line. A comment on a separate line belongs to the next line of code, unless it is
indented like the block that has just ended: then it belongs to the end of that block.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lark.lexer import Token

from minutebook.dsl.indentation import depth_of
from minutebook.dsl.syntax import NO_TRIVIA, Trivia


@dataclass
class Comments:
    """The comments of a program, by the number of the line they belong to."""

    of_line: dict[int, Trivia] = field(default_factory=dict)
    below_line: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Number of the line that opens a block (0 for the program) → the comments at the end of the block."""

    def of(self, line: int) -> Trivia:
        """The comments of a line of code."""
        return self.of_line.get(line, NO_TRIVIA)

    def below(self, line: int) -> tuple[str, ...]:
        """The comments at the end of the block that a line opens."""
        return self.below_line.get(line, ())


class _OpenBlock(NamedTuple):
    depth: int
    opener: int
    """The number of the line that opens the block; 0 for the program."""


def comments_in(line_ends: Iterable[Token], *, leading: bool) -> Comments:
    """The comments of a program. `line_ends` are its NL tokens, in order: the text of each contains the comments there.

    With `leading`, the first token comes before all code.
    """
    comments = Comments()
    above: dict[int, list[str]] = {}
    trailing: dict[int, str] = {}
    blanks: set[int] = set()
    blocks = [_OpenBlock(depth=0, opener=0)]
    line, depth = 0 if leading else 1, 0  # of the last line of code before the token; line 0 if there is none
    for token in line_ends:
        # A token is the end of a line of code, the rows up to the next line of code, and the indentation of that line.
        trailing_comment, *rows = token.split("\n")
        if line:
            trailing[line] = trailing_comment.strip()
        else:
            rows.insert(0, trailing_comment)
        indentation = rows.pop()
        next_line, next_depth = token.end_line or 0, depth_of(indentation)
        if next_depth > depth and line:
            blocks.append(_OpenBlock(next_depth, opener=line))
        next_rows = _assign_to_blocks(rows, blocks, next_depth, comments)
        line, depth = next_line, next_depth
        while blocks[-1].depth > depth:
            blocks.pop()
        if next_rows and not next_rows[0]:
            blanks.add(line)
        above[line] = next_rows
    # The last token is the end of the text: no code follows it, so its comments belong to the end of the program.
    comments.below_line[0] = _without_extra_blanks(above.pop(line, []), trim_end=True)
    for number in {*above, *trailing}:
        comments.of_line[number] = Trivia(
            _without_extra_blanks(above.get(number, [])), trailing.get(number, ""), number in blanks
        )
    return comments


def _assign_to_blocks(rows: Sequence[str], blocks: list[_OpenBlock], depth: int, comments: Comments) -> list[str]:
    """Assign comments to the ended blocks with the same indentation, and return the rows for the next line of code.

    `depth` is that of the next line of code.
    """
    ended_blocks = [block for block in blocks if block.depth > depth]
    next_rows: list[str] = []
    block_rows: dict[int, list[str]] = {}
    for row in rows:
        comment = row.lstrip(" \t")
        row_depth = depth_of(row[: len(row) - len(comment)])
        while comment and ended_blocks and ended_blocks[-1].depth > row_depth:
            ended_blocks.pop()
        if ended_blocks:
            block_rows.setdefault(ended_blocks[-1].opener, []).append(comment.rstrip())
        else:
            next_rows.append(comment.rstrip())
    for opener, lines in block_rows.items():
        if lines and not lines[-1]:
            next_rows.insert(0, "")
        if trimmed := _without_extra_blanks(lines, trim_end=True):
            comments.below_line[opener] = trimmed
    return next_rows


def _without_extra_blanks(rows: Sequence[str], *, trim_end: bool = False) -> tuple[str, ...]:
    """The rows without empty rows at the start, and with at most one empty row between comments."""
    trimmed: list[str] = []
    for row in rows:
        if row or (trimmed and trimmed[-1]):
            trimmed.append(row)
    while trim_end and trimmed and not trimmed[-1]:
        trimmed.pop()
    return tuple(trimmed)
