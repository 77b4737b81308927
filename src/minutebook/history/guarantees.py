"""The guarantees of every view, enforced after any manager.

A view is valid for its provider, fits the budget, includes the required messages, and equals the record if the record
fits. If a manager's view violates a guarantee, the guard repairs the view and reports the violation, or raises if it is
strict.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from minutebook.errors import CannotFit, GuaranteeViolated
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.compose import managers_in
from minutebook.history.curation import Curated, NoteChain, NoteStatus, ViewNote, tokens_of_view
from minutebook.history.incremental import ContextualManager, PreservedMessages, last_exchange
from minutebook.history.origins import curated_of
from minutebook.history.protocol import NO_CONTEXT, CurationContext, Guarantee, HistoryManager, Violation
from minutebook.record.finding import SHAPE_KINDS, Finding, FindingKind, errors
from minutebook.record.message import Message, Provider, is_result, is_system, leading_system_count
from minutebook.record.repairs import RepairAction, placeholder_result, repair_view
from minutebook.record.transcript import Transcript
from minutebook.record.validation import QuickCheck, check, rejected_kinds


@dataclass(frozen=True, slots=True)
class Guarded:
    """A view for which all guarantees hold, and the violations that were repaired."""

    view: Curated
    violations: tuple[Violation, ...]


def guard(
    record: Sequence[Message],
    view: Sequence[Message],
    *,
    manager: HistoryManager | None = None,
    provider: Provider = "openai",
    max_tokens: int | None = None,
    context: CurationContext | None = None,
    strict: bool = False,
    keep_parts: bool = False,
) -> Guarded:
    """Return the view, repaired so that all guarantees hold.

    `manager` decides whether the record fits. Without a manager, `Guarantee.UNTOUCHED` is not checked. With `keep_parts`,
    parts of content that the provider may not support are sent unchanged: the service passes on what its clients send.

    Raises:
        GuaranteeViolated: `strict` is set, and the view violates a guarantee that the record does not violate.
        CannotFit: the required messages exceed `max_tokens`.
    """
    rejected_kinds(provider)
    transcript = Transcript.of(record)
    with transcript.lock:
        guarded = _GuardedView(transcript, view, context or NO_CONTEXT, provider, keep_parts=keep_parts)
        guarded.trusts_messages = (
            (manager is None or all(isinstance(part, ContextualManager) for part in managers_in(manager)))
            and isinstance(view, Curated)
            and not guarded.has_malformed_messages()
            and not transcript.has_unusual_fields
            and FindingKind.BAD_ARGUMENTS not in rejected_kinds(provider)
        )
        guarded.restore_record(manager)
        guarded.restore_order()
        guarded.restore_required()
        guarded.make_valid()
        guarded.make_fit(max_tokens)
        guarded.report_repairs()
    if strict and (violations := [violation for violation in guarded.violations if not violation.in_record]):
        raise GuaranteeViolated(violations)
    return Guarded(guarded.view, tuple(guarded.violations))


_PROVIDER_KINDS: Final = frozenset(
    {
        *(FindingKind.BAD_NAME, FindingKind.BAD_PART, FindingKind.BAD_ARGUMENTS),
        *(FindingKind.REUSED_ID, FindingKind.WRONG_FIRST_ROLE),
    }
)
"""Problems that only some providers reject. The record keeps such messages, and the guard repairs them in views."""


class _GuardedView:
    """A view while it is checked and repaired."""

    def __init__(
        self,
        record: Transcript,
        view: Sequence[Message],
        context: CurationContext,
        provider: Provider,
        *,
        keep_parts: bool,
    ) -> None:
        self.record = record
        self.source = record.coherent()
        self.context = context
        self.provider = provider
        self.keep_parts = keep_parts
        self.violations: list[Violation] = []
        self.trusts_messages = False
        """Whether the content of single messages needs no check, because they come from the record or from built-in
        managers."""
        self._record_problems: set[tuple[FindingKind, int | None, str | None]] | None = None
        self.view = curated_of(record, view)
        for change in self.view.repairs:
            self._report(Guarantee.VALID, str(change))

    def has_malformed_messages(self) -> bool:
        """Whether a message of the record that no provider accepts is in the view without its repair."""
        findings = self.record.findings
        malformed = {id(self.record[finding.index]) for finding in findings if finding.kind in SHAPE_KINDS}
        return bool(malformed) and not malformed.isdisjoint(map(id, self.view))

    def restore_record(self, manager: HistoryManager | None) -> None:
        """Enforce `Guarantee.UNTOUCHED`."""
        if not isinstance(manager, ContextualManager) or self.source is not self.record:
            return
        if manager.fits(self.record) and list(self.record) != list(self.view):
            self._report(Guarantee.UNTOUCHED, "the record fits, but the view differs from it")
            self.view = Curated(self.record, range(len(self.record)), ())

    def restore_order(self) -> None:
        """Enforce the record's order: each of its messages at most once, the leading system messages first.

        Messages that the manager added may be anywhere after the leading system messages; added system messages also
        before them.
        """
        if not _is_ascending(self.view.origins):
            self._sort_by_position()
        if self.source.leading_system_count:
            self._move_leading_system_messages()

    def _sort_by_position(self) -> None:
        """Put the messages of the record in its order, and leave out duplicates. Added messages stay where they are."""
        indexes = self.source.indexes_of(self.view.origins)  # a repair of the record may have moved messages
        if _is_ascending(indexes):
            return
        rows: list[tuple[int | None, int | None, Message]] = []
        seen: set[int | None] = set()
        duplicates: list[int | None] = []
        for index, origin, message in zip(indexes, self.view.origins, self.view, strict=True):
            if index is not None and index in seen:
                duplicates.append(origin)
            else:
                rows.append((index, origin, message))
                seen.add(index)
        if duplicates:
            self._report(Guarantee.VALID, f"messages of the record are in the view twice: {duplicates}")
        if not _is_ascending([index for index, _, _ in rows]):
            self._report(Guarantee.VALID, "the messages are not in the order of the record")
        in_order = iter(sorted((row for row in rows if row[0] is not None), key=lambda row: row[0] or 0))
        rows = [row if row[0] is None else next(in_order) for row in rows]
        self.view = Curated([row[2] for row in rows], [row[1] for row in rows], self.view.note_chains)

    def _move_leading_system_messages(self) -> None:
        """Move the leading system messages of the record before any message that is no system message."""
        leading_count = leading_system_count(self.view)
        positions = {self.source.position_of(index) for index in range(self.source.leading_system_count)}
        first_origin = next((origin for origin in self.view.origins[leading_count:] if origin is not None), None)
        if first_origin is None or first_origin not in positions:
            return
        self._report(Guarantee.VALID, "other messages are before a leading system message")
        rows = list(zip(self.view.origins, self.view, strict=True))
        rows[leading_count:] = sorted(rows[leading_count:], key=lambda row: row[0] is None or row[0] not in positions)
        self.view = Curated([message for _, message in rows], [origin for origin, _ in rows], self.view.note_chains)

    def restore_required(self) -> None:
        """Enforce `Guarantee.KEEPS`."""
        sent = dict(zip(self.view.origins, self.view, strict=True))
        missing = {index: name for index, name in self._required().items() if not self._is_included(sent, index)}
        if not missing:
            return
        for name in dict.fromkeys(missing.values()):
            self._report(Guarantee.KEEPS, f"{name} was missing or changed")
        view = list(zip(self.view.origins, self.view, strict=True))
        for index in missing:
            position = self.source.position_of(index)
            view = [(origin, message) for origin, message in view if origin != position]
            view.insert(_view_index(view, position), (position, self.source[index]))
        self.view = Curated([message for _, message in view], [origin for origin, _ in view], self.view.note_chains)

    def make_valid(self) -> None:
        """Enforce `Guarantee.VALID`."""
        self._answer_open_calls()
        if self.trusts_messages and self.record.cached_value(("quick check",), QuickCheck).passes(self.view):
            return
        findings = errors(check(self.view, provider=self.provider))
        if self.keep_parts:
            findings = [finding for finding in findings if finding.kind is not FindingKind.BAD_PART]
        for finding in findings:
            if not self._is_in_record(finding):
                self._report(Guarantee.VALID, str(finding))
            elif finding.kind is FindingKind.EMPTY_VIEW:
                if self.provider != "openai":  # accepts a request that has only system messages
                    self.violations.append(Violation(Guarantee.VALID, str(finding), in_record=True))
            elif finding.kind in _PROVIDER_KINDS and (position := self.view.origins[finding.index]) is not None:
                detail = str(replace(finding, index=position))
                self.violations.append(Violation(Guarantee.VALID, detail, in_record=True))
        if findings:
            repaired = repair_view(self.view, self.provider, keep_parts=self.keep_parts)
            record_positions = [None if index is None else self.view.origins[index] for index in repaired.origins]
            notes = {
                position: ViewNote(_status(change.action), change.what)
                for change in repaired.repairs
                if (position := self.view.origins[change.index]) is not None
            }
            note_chains = (*self.view.note_chains, NoteChain(notes, None)) if notes else self.view.note_chains
            self.view = Curated(repaired.messages, record_positions, note_chains)

    def report_repairs(self) -> None:
        """Report the repairs of the record's own problems in messages that are in the view."""
        repairs = self.record.repairs
        if not repairs:
            return
        sent = set(self.view.origins)
        for change in repairs:
            position = self.record.position_of(change.index)
            if position in sent:
                detail = change.what if position is None else str(replace(change, index=position))
                self.violations.append(Violation(Guarantee.VALID, detail, in_record=True))

    def _answer_open_calls(self) -> None:
        """Add placeholder results for the open calls at the end of the record."""
        open_calls = self.source.open_calls
        start = self.source.position_of(last_exchange(self.source).start) if open_calls else None
        call_index = len(self.view) - 1
        while call_index >= 0 and is_result(self.view[call_index]):
            call_index -= 1
        if start is None or call_index < 0 or self.view.origins[call_index] != start:
            return
        placeholders = [placeholder_result(call_id) for call_id in open_calls]
        tokens = self.view.tokens
        if tokens is not None:
            tokens += sum(map(self.record.counter.message, placeholders))
        origins = [*self.view.origins, *([None] * len(placeholders))]
        self.view = Curated([*self.view, *placeholders], origins, self.view.note_chains, tokens)

    def make_fit(self, max_tokens: int | None) -> None:
        """Enforce `Guarantee.FITS`, or raise `CannotFit`."""
        if max_tokens is None:
            return
        if self.view.tokens is not None and self.view.tokens <= max_tokens:
            return
        transcript = self.source.derive(self.view, self.source.indexes_of(self.view.origins), is_view=True)
        if transcript.tokens <= max_tokens:
            return
        self._report(Guarantee.FITS, f"{transcript.tokens:,} tokens, more than the maximum of {max_tokens:,}")
        violations, note_chains, limit = [*self.violations], self.view.note_chains, max_tokens
        excess = 1
        while excess > 0:  # a repair of the shorter view may add a message, so that less fits
            manager = TokenBudgetManager(limit, counter=self.record.counter)
            try:
                shorter = manager.curate(transcript, context=self.context)
            except CannotFit as error:
                raise CannotFit(max_tokens, error.needed + max_tokens - limit, error.irreducible) from None
            self.violations = [*violations]
            self.view = Curated(shorter, shorter.origins, (*note_chains, *shorter.note_chains))
            self.make_valid()
            excess = tokens_of_view(self.record, self.view) - max_tokens
            limit = max(1, limit - excess)

    def _required(self) -> dict[int, str]:
        """Index of each message that `Guarantee.KEEPS` is about → its description in a violation."""
        source, preserved = self.source, PreservedMessages.of(self.context, self.source)
        required = dict.fromkeys(range(preserved.leading_count(source)), "a leading system message")
        required |= dict.fromkeys(sorted(preserved.pinned(source)), "a pinned message")
        if preserved.last_count:
            required |= dict.fromkeys(range(preserved.tail_start(source), len(source)), "one of the last messages")
        if source.newest_request is not None:
            required[source.newest_request] = "the newest request"
        if source.open_calls or (source.newest_request is None and len(source) > source.leading_system_count):
            required |= dict.fromkeys(last_exchange(source), "the exchange that is still open")
        return required

    def _is_included(self, sent: dict[int | None, Message], index: int) -> bool:
        position = self.source.position_of(index)
        message = sent.get(position)
        if position is None or message is self.source[index] or message == self.source[index]:
            return True
        if self.source is self.record or message is None:
            return False
        # A manager of the application gets the messages of the record, and `make_valid` repairs those that it keeps.
        origin = self.source.origin_of(index)
        return origin is not None and message == self.record[origin]

    def _is_in_record(self, finding: Finding) -> bool:
        """Whether the record itself has this problem, so that the manager did not cause it."""
        if self._record_problems is None:
            findings = check(self.record, provider=self.provider)
            self._record_problems = {
                (problem.kind, self.record.position_of(problem.index) if self.record else 0, problem.call_id)
                for problem in findings
            }
        position = self.view.origins[finding.index] if self.view else 0
        return (finding.kind, position, finding.call_id) in self._record_problems

    def _report(self, guarantee: Guarantee, detail: str) -> None:
        self.violations.append(Violation(guarantee, detail))


def _is_ascending(indexes: Sequence[int | None]) -> bool:
    """Whether each index is higher than the one before it. None is ignored."""
    last = -1
    for index in indexes:
        if index is not None:
            if index <= last:
                return False
            last = index
    return True


def _status(action: RepairAction) -> NoteStatus:
    return NoteStatus.DROPPED if action is RepairAction.DROPPED else NoteStatus.REPAIRED


def _view_index(view: Sequence[tuple[int | None, Message]], position: int | None) -> int:
    """Where in a view, with the origins of its messages, the message at this position of the record belongs.

    That is after the earlier messages of the record and the added system messages that follow them.
    """
    view_index = 0
    for index, (origin, message) in enumerate(view):
        is_added_next = origin is None and index == view_index and is_system(message)
        if is_added_next or (origin is not None and position is not None and origin < position):
            view_index = index + 1
    return view_index
