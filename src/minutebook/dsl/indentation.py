"""Indentation as tokens: where a block begins and where it ends."""

from collections.abc import Iterator
from typing import Final

from lark.lark import PostLex
from lark.lexer import Token

TAB: Final = 8
"""A tab leads to the next column that is a multiple of this, as in terminals."""


class Misaligned(Exception):
    """A line goes back to a depth at which no block is open."""

    def __init__(self, line: int, column: int) -> None:
        super().__init__(line, column)
        self.line, self.column = line, column


class Layout(PostLex):
    """Puts _INDENT and _DEDENT after the ends of lines; all state is in the generator, so threads can share it."""

    always_accept = ("NL",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        levels = [0]
        first, token = True, None
        for token in stream:
            if first and token.type != "NL" and (token.column or 1) > 1:
                yield _mark("_INDENT", 1, token.column or 1, token)
            first = False
            yield token
            if token.type == "NL":
                yield from _steps(levels, token)
        if token is not None:
            yield from (_mark("_DEDENT", token.end_line, token.end_column, token) for _ in levels[1:])


def depth_of(indentation: str) -> int:
    """The column that white space leads to."""
    return len(indentation.expandtabs(TAB))


def _steps(levels: list[int], token: Token) -> Iterator[Token]:
    depth = depth_of(token.rpartition("\n")[2])
    if depth > levels[-1]:
        levels.append(depth)
        yield _mark("_INDENT", token.end_line, token.end_column, token)
    while depth < levels[-1]:
        levels.pop()
        if depth > levels[-1]:
            raise Misaligned(token.end_line or 0, token.end_column or 0)
        yield _mark("_DEDENT", token.end_line, token.end_column, token)


def _mark(kind: str, line: int | None, column: int | None, near: Token) -> Token:
    return Token(kind, "", near.end_pos, line, column, line, column, near.end_pos)
