"""What fills the window: a bar, its parts, and what was left out of it and why.

An answer on the terminal, word by word as it comes.
"""

import re
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from minutebook.agent.events import AnswerRestarted, Finished, RunEvent, ViewMade
from minutebook.agent.messages import TextDelta, ThinkingDelta
from minutebook.cli.commands.view import Cut, cuts_of
from minutebook.cli.screen import ROLE_LOOK, bar, by_role, one_line, percent
from minutebook.history.curated import Status
from minutebook.history.view import View

LOOK: Final = ROLE_LOOK | {"free": ("dim", "·"), "left out": ("dim", "▫")}
OUT: Final = frozenset({Status.DROPPED, Status.FOLDED})
PLURAL: Final = {"tool": "tools"}


def show_context(out: Console, view: View, limit: int | None, done: str) -> None:
    """Print what fills a view, out of `limit` tokens where there is a limit; `done` is what was done with it."""
    lines = view.explain().lines
    parts = by_role((line.role, line.sent_tokens) for line in lines)
    used = sum(parts.values())
    if limit is not None and used < limit:
        parts["free"] = limit - used
    whole = max(used, limit or 0)
    out.print(bar(parts, max(10, out.width - len(LOOK)), whole or 1, LOOK))
    out.print(_legend(parts, whole, sum(line.tokens - line.sent_tokens for line in lines if line.index is not None)))
    out.print(Text(_summary(view, limit, done, cuts_of(lines))))


def _summary(view: View, limit: int | None, done: str, cuts: Sequence[Cut]) -> str:
    """`5 of 9 messages sent, 612 of 1,000 tokens; 4 left out: older than the window of 4 messages`."""
    of_limit = "" if limit is None else f" of {limit:,}"
    parts = [f"{len(view.messages):,} of {len(view.record):,} messages {done}, {view.tokens:,}{of_limit} tokens"]
    parts += [f"{cut.messages:,} {'left out' if cut.fate in OUT else cut.fate.value}: {cut.reason}" for cut in cuts]
    return "; ".join(parts)


def _legend(parts: dict[str, int], whole: int, left_out: int) -> Table:
    table = Table.grid(padding=(0, 1))
    for _ in ("mark", "kind"):
        table.add_column()
    for _ in ("tokens", "share"):
        table.add_column(justify="right")
    for name, tokens in parts.items():
        table.add_row(_mark(name), PLURAL.get(name, name), f"{tokens:,}", percent(tokens, whole))
    if left_out:
        table.add_row(_mark("left out"), "left out", f"{left_out:,}", "")
    return table


def _mark(name: str) -> Text:
    colour, mark = LOOK[name]
    return Text(mark, colour)


_PIECES: Final = re.compile(r"\n|[^\S\n]+|\S+")
_COMMANDS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that would command the terminal rather than be shown on it."""


def shown(text: str) -> str:
    """Text that can only be read, whatever a model puts in it; line breaks stay."""
    return _COMMANDS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r", "").replace("\t", "    "))


def asking_again(problem: str) -> str:
    """What is said when an answer broke off and is asked for once more."""
    return f"{one_line(problem).rstrip('.')}; asking again"


class Voice:
    """Shows the events of a run. Lines break between words: a word is held back until it is whole."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._style = ""
        self._column = 0
        self._gap = ""
        self._word = ""
        self._waiting = False
        self._spoke = False

    def hear(self, event: RunEvent) -> None:
        match event:
            case ViewMade():
                self._wait()
            case ThinkingDelta(text):
                self._say(text, "dim italic")
            case TextDelta(text):
                self._spoke = True
                self._say(text, "")
            case AnswerRestarted(problem):
                self.end()
                self._spoke = False
                self._out.print(Text(asking_again(problem), "yellow"))
                self._wait()
            case Finished(response):
                if not self._spoke:
                    self._say(response.text or "(no words)", "" if response.text else "dim")
                self.end()

    def end(self) -> None:
        """Leave the cursor at the beginning of a line."""
        self._stop_waiting()
        self._flush()
        if self._column:
            self._line()
        self._gap = ""

    def _say(self, text: str, style: str) -> None:
        self._stop_waiting()
        if style != self._style:
            self.end()
            self._style = style
        for piece in _PIECES.findall(shown(text)):
            if not piece.isspace():
                self._word += piece
                continue
            self._flush()
            if piece == "\n":
                self._line()
            else:
                self._gap += piece

    def _flush(self) -> None:
        if not self._word:
            return
        width = max(1, self._out.width)
        length = cell_len(self._gap) + cell_len(self._word)
        if self._column and self._column + length > width:
            self._line()
            length = cell_len(self._word)
        self._out.out(self._gap + self._word, style=self._style or None, end="", highlight=False)
        self._column = (self._column + length - 1) % width + 1
        self._gap = self._word = ""

    def _line(self) -> None:
        self._out.out("")
        self._column, self._gap = 0, ""

    def _wait(self) -> None:
        """A sign that the model was asked, for as long as it says nothing."""
        if self._out.is_terminal and not self._out.is_dumb_terminal:
            self._out.out("…", style="dim", end="", highlight=False)
            self._waiting = True

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._out.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
            self._waiting = False
