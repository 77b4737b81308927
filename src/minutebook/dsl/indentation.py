"""Tokens for indentation: the start and the end of a block."""

from collections.abc import Iterator
from typing import Final

from lark.lark import PostLex
from lark.lexer import Token

TAB_WIDTH: Final = 8
"""The distance of tab stops, as in terminals."""


class MisalignedLine(Exception):
    """The indentation of a line matches no open block."""

    def __init__(self, line: int, column: int) -> None:
        super().__init__(line, column)
        self.line, self.column = line, column


class IndentationTokens(PostLex):
    """Adds _INDENT and _DEDENT after the ends of lines. All state is in the generator, so threads can share an instance."""

    always_accept = ("NL",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        levels = [0]
        is_first, token = True, None
        for token in stream:
            if is_first and token.type != "NL" and (token.column or 1) > 1:
                yield _token("_INDENT", 1, token.column or 1, token)
            is_first = False
            yield token
            if token.type == "NL":
                yield from _level_changes(levels, token)
        if token is not None:
            yield from (_token("_DEDENT", token.end_line, token.end_column, token) for _ in levels[1:])


def depth_of(indentation: str) -> int:
    """The number of columns of white space, with tabs expanded."""
    return len(indentation.expandtabs(TAB_WIDTH))


def _level_changes(levels: list[int], token: Token) -> Iterator[Token]:
    """The tokens for the indentation after the end of a line; `levels`, the open blocks, is updated."""
    depth = depth_of(token.rpartition("\n")[2])
    if depth > levels[-1]:
        levels.append(depth)
        yield _token("_INDENT", token.end_line, token.end_column, token)
    while depth < levels[-1]:
        levels.pop()
        if depth > levels[-1]:
            raise MisalignedLine(token.end_line or 0, token.end_column or 0)
        yield _token("_DEDENT", token.end_line, token.end_column, token)


def _token(kind: str, line: int | None, column: int | None, previous: Token) -> Token:
    return Token(kind, "", previous.end_pos, line, column, line, column, previous.end_pos)
