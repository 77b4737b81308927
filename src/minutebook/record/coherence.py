"""The mended copy of a broken transcript, kept up to date as it grows."""

from typing import TYPE_CHECKING

from minutebook.record.finding import FindingKind
from minutebook.record.message import is_result
from minutebook.record.repair import Repair, RepairAction, no_result, repair

if TYPE_CHECKING:
    from minutebook.record.transcript import Transcript

_LEFT_OUT = frozenset({FindingKind.ORPHAN_RESULT, FindingKind.DUPLICATE_RESULT, FindingKind.UNKNOWN_ROLE})
"""Findings that are mended by leaving the message out."""

_AT_THE_END = _LEFT_OUT | {FindingKind.DANGLING_CALL}
"""Findings that are mended without touching what came before."""


class Mended:
    """Repairs a transcript once, and again only when something arrives that changes what came before it."""

    __slots__ = ("_copy", "_findings", "_length", "_pins", "_source", "repairs")

    def __init__(self, source: "Transcript") -> None:
        self._source = source
        self._copy: Transcript | None = None
        self._length = 0
        self._findings = 0
        self._pins: frozenset[int] = frozenset()
        self.repairs: tuple[Repair, ...] = ()

    def current(self) -> "Transcript":
        if self._copy is None or not self._extend(self._copy):
            mended = repair(self._source, keep_open=True)
            self._copy = self._source.derive(mended.messages, mended.origins, in_order=True)
            self.repairs = mended.repairs
        self._length, self._findings, self._pins = len(self._source), len(self._source.findings), self._source.pins
        return self._copy

    def _extend(self, copy: "Transcript") -> bool:
        """Append what is new; False if the copy has to be made anew."""
        source = self._source
        if len(source) == self._length and source.pins == self._pins:
            return True
        news = source.findings[self._findings :]
        if source.pins != self._pins or any(finding.kind not in _AT_THE_END for finding in news):
            return False
        left_out = {finding.index: finding for finding in news if finding.kind in _LEFT_OUT}
        for index in range(self._length, len(source)):
            if not is_result(source[index]):
                self._answer(copy)
            if finding := left_out.get(index):
                self.repairs += (Repair(finding.kind, RepairAction.DROPPED, index, finding.call_id),)
            else:
                copy.append_from(index, source[index])
        return True

    def _answer(self, copy: "Transcript") -> None:
        """Something was said while calls still waited: nobody will answer them now."""
        for call_id in copy.open_calls:
            asking = copy.root_of(copy.exchange_starts[-1])
            assert asking is not None
            copy.append_from(None, no_result(call_id))
            self.repairs += (Repair(FindingKind.DANGLING_CALL, RepairAction.ANSWERED, asking, call_id),)
