"""The mended copy of a broken transcript, kept up to date as it grows."""

from typing import TYPE_CHECKING

from minutebook.record.finding import FindingKind
from minutebook.record.message import Message, call_ids
from minutebook.record.repair import Repair, RepairAction, repair

if TYPE_CHECKING:
    from minutebook.record.transcript import Transcript

_LEFT_OUT = frozenset({FindingKind.ORPHAN_RESULT, FindingKind.DUPLICATE_RESULT, FindingKind.UNKNOWN_ROLE})
"""Findings that are mended by leaving the message out, which changes nothing that came before it."""


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
            self._copy = self._source.derive(mended.messages, mended.origins)
            self.repairs = mended.repairs
        self._length, self._findings, self._pins = len(self._source), len(self._source.findings), self._source.pins
        return self._copy

    def _extend(self, copy: "Transcript") -> bool:
        """Append what is new; False if the copy has to be made anew."""
        source = self._source
        news = source.findings[self._findings :]
        if source.pins != self._pins or any(finding.kind not in _LEFT_OUT for finding in news):
            return False
        if self._asks_for_an_orphan(source.since(self._length)):
            return False
        left_out = {finding.index: finding for finding in news}
        for index in range(self._length, len(source)):
            if finding := left_out.get(index):
                self.repairs += (Repair(finding.kind, RepairAction.DROPPED, index, finding.call_id),)
            else:
                copy.append_from(index, source[index])
        return True

    def _asks_for_an_orphan(self, messages: list[Message]) -> bool:
        """Whether a call arrived whose result was here before it."""
        orphans = {done.call_id for done in self.repairs if done.kind is FindingKind.ORPHAN_RESULT}
        return bool(orphans) and any(not orphans.isdisjoint(call_ids(message)) for message in messages)
