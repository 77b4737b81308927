"""Which messages a cut keeps: those that are likely to be used again, within the tokens that the cut leaves.

An exchange and each of its results live for a number of model calls that depends on what they are. A cut leaves out what
has outlived. If more has to go, the share of the life that is left decides.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from minutebook.history.budget.tool_uses import ResultKind, ToolUses
from minutebook.history.tool_results import NUMBERED_MARKER, cleared_result
from minutebook.record.message import Message, call_ids, is_result, is_system, is_user
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter

RESULT_LIVES: Final[Mapping[ResultKind, int]] = {
    ResultKind.FILE: 12,
    ResultKind.LISTING: 6,
    ResultKind.OUTPUT: 1,
    ResultKind.EDIT: 10,
    ResultKind.OTHER: 12,
}
"""Life of a result in model calls, before `TokenBudgetManager.life` is applied. Measured on recorded agent sessions."""
_EXCHANGE_LIFE: Final = 36
"""Life of an assistant message with tool calls and of its cleared results."""
_TEXT_LIFE: Final = 60
"""Life of a message without tool calls: a request, an answer."""
_SUPERSEDED: Final = 0.5
"""Factor of the life of a result whose file was read or written again."""


@dataclass(slots=True)
class Row:
    """One message of the view before the cut."""

    index: int
    message: Message
    tokens: int


@dataclass(slots=True)
class _Unit:
    """Something that is kept or left out: an exchange with cleared results, or the text of one of its results."""

    value: float
    """Share of its life that is left."""
    start: int
    """Index of the first message of the exchange."""
    index: int
    """Index of the result; -1 for the exchange."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The result of a cut."""

    cleared: Mapping[int, tuple[Message, int]]
    """Index of each result that is cleared → its replacement and the tokens of that."""
    dropped: Sequence[int]
    """Indexes of the messages that are left out."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects what a cut keeps."""

    source: Transcript
    uses: ToolUses
    counter: TokenCounter
    call_numbers: Sequence[int]
    """The number of model calls before each message."""
    life: float
    """Factor of all lives."""

    def select(
        self, rows: Sequence[Row], fixed: Collection[int], kept_results: Collection[int], goal: int
    ) -> Selection:
        """Keep the `fixed` messages, whole exchanges, and the results that are not to be cleared, within the goal.

        The results in `kept_results` are cleared only with their exchange.
        """
        markers = {row.index: marker for row in rows if row.index not in fixed and (marker := self._marker(row))}
        tokens = sum(row.tokens for row in rows if row.index in fixed)
        kept: set[int] = set()
        for unit in sorted(
            self._units(rows, fixed, kept_results, markers), key=lambda unit: (-unit.value, -unit.start, unit.index)
        ):
            if tokens + unit.tokens <= goal and (unit.index < 0 or unit.start in kept):
                kept.add(unit.start if unit.index < 0 else unit.index)
                tokens += unit.tokens
        dropped = [
            row.index for row in rows if row.index not in fixed and self.source.exchange_of(row.index).start not in kept
        ]
        dropped += self._without_request(rows, {*dropped}, fixed)
        gone = set(dropped)
        cleared = {index: marker for index, marker in markers.items() if index not in kept and index not in gone}
        return Selection(cleared, sorted(dropped))

    def _marker(self, row: Row) -> tuple[Message, int] | None:
        """The cleared result and its tokens; None if the message is no result, or clearing does not make it smaller."""
        if not is_result(row.message):
            return None
        rewrite = cleared_result(self.source, row.index, marker=NUMBERED_MARKER)
        if rewrite is None or (tokens := self.counter.message(rewrite[0])) >= row.tokens:
            return None
        return rewrite[0], tokens

    def _units(
        self,
        rows: Sequence[Row],
        fixed: Collection[int],
        kept_results: Collection[int],
        markers: Mapping[int, tuple[Message, int]],
    ) -> Iterator[_Unit]:
        now = self.call_numbers[-1]
        free_rows = (row for row in rows if row.index not in fixed)
        for start, exchange in groupby(free_rows, key=lambda row: self.source.exchange_of(row.index).start):
            has_calls = bool(call_ids(self.source[start]))
            age = now - self.call_numbers[start]
            value = 1 - age / ((_EXCHANGE_LIFE if has_calls else _TEXT_LIFE) * self.life)
            tokens = 0
            for row in exchange:
                tokens += row.tokens
                if row.index not in markers:
                    continue
                marker_tokens = markers[row.index][1]
                tokens -= row.tokens - marker_tokens
                result_value = 1.0 if row.index in kept_results else 1 - age / self._life_of(row.index)
                if result_value > 0:
                    yield _Unit(result_value, start, row.index, row.tokens - marker_tokens)
                value = max(value, result_value)
            if value > 0:
                yield _Unit(value, start, -1, tokens)

    def _life_of(self, index: int) -> float:
        life = RESULT_LIVES[self.uses.of(index).kind] * self.life
        return life * _SUPERSEDED if self.uses.is_superseded(index, len(self.call_numbers)) else life

    def _without_request(self, rows: Sequence[Row], dropped: Collection[int], fixed: Collection[int]) -> list[int]:
        """Indexes of kept messages before the first kept user message: providers require that one to be first."""
        kept = [row for row in rows if row.index not in dropped and not is_system(row.message)]
        first = next((number for number, row in enumerate(kept) if is_user(row.message)), 0)
        return [row.index for row in kept[:first] if row.index not in fixed]
