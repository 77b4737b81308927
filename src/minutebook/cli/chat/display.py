"""Terminal output of a chat: the contents of the context window, streamed answers, errors of the provider."""

import re
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from minutebook.agent.events import AnswerRestarted, RunEvent, RunFinished, ViewBuilt
from minutebook.agent.messages import TextDelta, ThinkingDelta
from minutebook.agent.providers.environment import ProviderAccess, variable_prefix
from minutebook.cli.commands.view import Cut, cuts_of
from minutebook.cli.exits import print_error
from minutebook.cli.screen import ROLE_STYLES, bar, one_line, percent, tokens_by_role
from minutebook.errors import ProviderFailed, RetriesExhausted
from minutebook.history.curation import NoteStatus
from minutebook.history.view import View

PART_STYLES: Final = ROLE_STYLES | {"free": ("dim", "·"), "left out": ("dim", "▫")}
LEFT_OUT: Final = frozenset({NoteStatus.DROPPED, NoteStatus.FOLDED})
LEGEND_NAMES: Final = {"tool": "tools"}
"""Names of parts in the legend, where they differ from the role."""


def show_context(out: Console, view: View, limit: int | None, action: str) -> None:
    """Print the tokens of a view by role, out of `limit` tokens if there is a limit. `action` is "sent" or "to send"."""
    lines = view.explain().lines
    parts = tokens_by_role((line.role, line.sent_tokens) for line in lines)
    used = sum(parts.values())
    if limit is not None and used < limit:
        parts["free"] = limit - used
    total = max(used, limit or 0)
    out.print(bar(parts, max(10, out.width - len(PART_STYLES)), total or 1, PART_STYLES))
    out.print(_legend(parts, total, sum(line.tokens - line.sent_tokens for line in lines if line.index is not None)))
    out.print(Text(_summary(view, limit, action, cuts_of(lines))))


def _summary(view: View, limit: int | None, action: str, cuts: Sequence[Cut]) -> str:
    """A line such as `5 of 9 messages sent, 612 of 1,000 tokens; 4 left out: older than the window of 4 messages`."""
    of_limit = "" if limit is None else f" of {limit:,}"
    parts = [f"{len(view.curated):,} of {len(view.record):,} messages {action}, {view.tokens:,}{of_limit} tokens"]
    parts += [
        f"{cut.messages:,} {'left out' if cut.status in LEFT_OUT else cut.status.value}: {cut.reason}" for cut in cuts
    ]
    return "; ".join(parts)


def _legend(parts: dict[str, int], total: int, left_out: int) -> Table:
    table = Table.grid(padding=(0, 1))
    for _ in ("mark", "kind"):
        table.add_column()
    for _ in ("tokens", "share"):
        table.add_column(justify="right")
    for name, tokens in parts.items():
        table.add_row(_mark(name), LEGEND_NAMES.get(name, name), f"{tokens:,}", percent(tokens, total))
    if left_out:
        table.add_row(_mark("left out"), "left out", f"{left_out:,}", "")
    return table


def _mark(name: str) -> Text:
    color, mark = PART_STYLES[name]
    return Text(mark, color)


_LINE_PARTS: Final = re.compile(r"\n|[^\S\n]+|\S+")
"""A line break, the spaces between two words, or a word."""
_CONTROL_CHARACTERS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that control a terminal or change the order of text, and lone surrogates."""


def safe_text(text: str) -> str:
    """The text of a model without control characters, except line breaks."""
    return _CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r", "").replace("\t", "    "))


def retry_notice(problem: str) -> str:
    """The line printed when an answer failed and the call is repeated."""
    return f"{one_line(problem).rstrip('.')}; retrying"


class AnswerPrinter:
    """Prints the events of a run. Lines are wrapped between words, so a word is printed when it is complete."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._style = ""
        self._column = 0
        self._spaces = ""
        """Spaces before `_word`."""
        self._word = ""
        """The part of a word that was received and not printed."""
        self._shows_ellipsis = False
        self._has_text = False

    def on_event(self, event: RunEvent) -> None:
        match event:
            case ViewBuilt():
                self._show_ellipsis()
            case ThinkingDelta(text):
                self._print(text, "dim italic")
            case TextDelta(text):
                self._has_text = True
                self._print(text, "")
            case AnswerRestarted(problem):
                self.end()
                self._has_text = False
                self._out.print(Text(retry_notice(problem), "yellow"))
                self._show_ellipsis()
            case RunFinished(response):
                if not self._has_text:
                    self._print(response.text or "(empty answer)", "" if response.text else "dim")
                self.end()

    def end(self) -> None:
        """Print the word that is still pending, and move the cursor to the start of a line."""
        self._erase_ellipsis()
        self._print_word()
        if self._column:
            self._end_line()
        self._spaces = ""

    def _print(self, text: str, style: str) -> None:
        self._erase_ellipsis()
        if style != self._style:
            self.end()
            self._style = style
        for part in _LINE_PARTS.findall(safe_text(text)):
            if not part.isspace():
                self._word += part
                continue
            self._print_word()
            if part == "\n":
                self._end_line()
            else:
                self._spaces += part

    def _print_word(self) -> None:
        if not self._word:
            return
        width = max(1, self._out.width)
        length = cell_len(self._spaces) + cell_len(self._word)
        if self._column and self._column + length > width:
            self._end_line()
            length = cell_len(self._word)
        self._out.out(self._spaces + self._word, style=self._style or None, end="", highlight=False)
        self._column = (self._column + length - 1) % width + 1
        self._spaces = self._word = ""

    def _end_line(self) -> None:
        self._out.out("")
        self._column, self._spaces = 0, ""

    def _show_ellipsis(self) -> None:
        """Print an ellipsis that shows that the model was called. It is erased when text arrives."""
        if self._out.is_terminal and not self._out.is_dumb_terminal:
            self._out.out("…", style="dim", end="", highlight=False)
            self._shows_ellipsis = True

    def _erase_ellipsis(self) -> None:
        if self._shows_ellipsis:
            self._out.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
            self._shows_ellipsis = False


def print_provider_error(access: ProviderAccess, error: Exception) -> None:
    """Print the error to stderr, with advice if the provider refused or failed."""
    if not isinstance(error, ProviderFailed):
        print_error(error)
        return
    # The problem is shortened to one line, without the details that `RetriesExhausted` adds.
    retryable = error.retryable or isinstance(error, RetriesExhausted)
    failure = ProviderFailed(error.provider, error.status, one_line(error.problem), retryable=retryable)
    print_error(failure, advice=_advice(access, failure))


def _advice(access: ProviderAccess, failure: ProviderFailed) -> str:
    key = f"{variable_prefix(access.provider)}_API_KEY"
    match failure.status:
        case None:
            return (
                f"check that a server runs at {access.base_url}" if access.base_url else "check the network connection"
            )
        case 401:
            return f"check {key}"
        case 403:
            return f"check {key} and whether it may use this model"
        case _ if failure.retryable:
            return "retry later"
        case _:
            return "check -m, --provider and --base-url"
