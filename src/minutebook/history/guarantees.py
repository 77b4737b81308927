"""What every view promises, enforced after any manager, ours or anybody's.

A view is valid for its provider, within the budget, holds what matters, and is the record itself when the manager says
the record fits. Where a view breaks that, the guard repairs it and says so, or, strict, raises.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from minutebook.errors import CannotFit, GuaranteeViolated
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.curation import Curated, NoteChain, NoteStatus, ViewNote
from minutebook.history.incremental import ContextualManager, KeepSet, last_exchange
from minutebook.history.origins import origins
from minutebook.history.protocol import NO_CONTEXT, CurationContext, HistoryManager
from minutebook.record.finding import Finding, FindingKind, errors
from minutebook.record.message import Message, Provider, is_result, is_system
from minutebook.record.repairs import RepairAction, placeholder_result, repair
from minutebook.record.transcript import Transcript
from minutebook.record.validation import check, passes_quick_check, rejected_kinds


class Guarantee(StrEnum):
    """What the guard looks after."""

    VALID = "valid"
    FITS = "fits"
    KEEPS = "keeps what matters"
    UNTOUCHED = "untouched when it fits"


@dataclass(frozen=True, slots=True)
class Violation:
    """A guarantee that a manager's view broke, and how."""

    guarantee: Guarantee
    detail: str

    def __str__(self) -> str:
        return f"{self.guarantee.value}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Guarded:
    """A view that keeps its promises, and what had to be done for that."""

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
) -> Guarded:
    """The view with every guarantee kept.

    `manager` is asked whether the record fits it; without one, nothing is said about views that could have been whole.

    Raises:
        PromiseBroken: `strict`, and the view breaks a guarantee.
        CannotFit: what must be in the view is larger than `max_tokens`.
    """
    rejected_kinds(provider)
    transcript = Transcript.of(record)
    with transcript.lock:
        work = _Work(transcript, view, context or NO_CONTEXT, provider)
        work.keeps_first = bool(getattr(manager, "preserve_first_request", False))
        work.restore_whole(manager)
        work.restore_kept()
        work.make_valid()
        work.make_fit(max_tokens)
    if strict and work.violations:
        raise GuaranteeViolated(work.violations)
    return Guarded(work.view, tuple(work.violations))


class _Work:
    """A view under the guard's hands."""

    def __init__(
        self, record: Transcript, view: Sequence[Message], context: CurationContext, provider: Provider
    ) -> None:
        self.record = record
        self.source = record.coherent()
        self.context = context
        self.provider = provider
        self.violations: list[Violation] = []
        self.keeps_first = False
        """Whether the manager promises the first request, as we do not."""
        self._faults: set[tuple[FindingKind, int | None, str | None]] | None = None
        trails = view.trails if isinstance(view, Curated) else ()
        self.view = view if isinstance(view, Curated) else Curated(view, origins(record, view), trails)

    def restore_whole(self, manager: HistoryManager | None) -> None:
        """Guarantee 4: a record that fits its manager is sent as it is."""
        if not isinstance(manager, ContextualManager) or self.source is not self.record:
            return
        if manager.fits(self.record) and list(self.record) != list(self.view):
            self._broke(Guarantee.UNTOUCHED, "the record fits, and the view is not the record")
            self.view = Curated(self.record, range(len(self.record)), ())

    def restore_kept(self) -> None:
        """Guarantee 3: leading system messages, pins, open calls and the newest request are there, verbatim."""
        sent = dict(zip(self.view.origins, self.view, strict=True))
        missing = [(place, why) for place, why in self._required().items() if not self._is_in(sent, place)]
        if not missing:
            return
        for why in dict.fromkeys(why for _, why in missing):
            self._broke(Guarantee.KEEPS, f"{why} was missing or changed")
        rows = list(zip(self.view.origins, self.view, strict=True))
        for place, _ in missing:
            root = self.source.position_of(place)
            rows = [row for row in rows if row[0] != root]
            before = sum(1 for origin, message in rows if _precedes(origin, root, message))
            rows.insert(before, (root, self.source[place]))
        self.view = Curated([row[1] for row in rows], [row[0] for row in rows], self.view.trails)

    def make_valid(self) -> None:
        """Guarantee 1: the provider accepts it."""
        self._answer_open_calls()
        if passes_quick_check(self.view) and FindingKind.BAD_ARGUMENTS not in rejected_kinds(self.provider):
            return
        found = errors(check(self.view, provider=self.provider))
        for finding in found:
            if not self._is_our_own(finding):
                self._broke(Guarantee.VALID, str(finding))
        if found:
            mended = repair(self.view, provider=self.provider)
            roots = [None if at is None else self.view.origins[at] for at in mended.origins]
            notes = {
                root: ViewNote(NoteStatus.DROPPED, done.what)
                for done in mended.repairs
                if done.action is RepairAction.DROPPED and (root := self.view.origins[done.index]) is not None
            }
            trails = (*self.view.trails, NoteChain(notes, None)) if notes else self.view.trails
            self.view = Curated(mended.messages, roots, trails)

    def _answer_open_calls(self) -> None:
        """The record may end with calls that still wait; the view says so in place of their results."""
        waiting = self.source.open_calls
        start = self.source.position_of(last_exchange(self.source).start) if waiting else None
        at = len(self.view) - 1
        while at >= 0 and is_result(self.view[at]):
            at -= 1
        if start is None or at < 0 or self.view.origins[at] != start:
            return
        answers = [placeholder_result(call_id) for call_id in waiting]
        tokens = self.view.tokens
        if tokens is not None:
            tokens += sum(map(self.record.counter.message, answers))
        origins = [*self.view.origins, *([None] * len(answers))]
        self.view = Curated([*self.view, *answers], origins, self.view.trails, tokens)

    def make_fit(self, max_tokens: int | None) -> None:
        """Guarantee 2: it is within the budget, or `CannotFit` says why not."""
        if max_tokens is None:
            return
        if self.view.tokens is not None and self.view.tokens <= max_tokens:
            return
        made = self.source.derive(self.view, self.source.indexes_of(self.view.origins))
        if made.tokens <= max_tokens:
            return
        self._broke(Guarantee.FITS, f"{made.tokens:,} tokens, of {max_tokens:,}")
        tighter = self._within(max_tokens, made)
        self.view = Curated(tighter, tighter.origins, (*self.view.trails, *tighter.trails))
        self.make_valid()

    def _within(self, max_tokens: int, made: Transcript) -> Curated:
        """The view cut down to size; the first request, which nothing promises, goes only where there is no other way."""
        budget = TokenBudgetManager(max_tokens, counter=self.record.counter)
        try:
            return budget.curate(made, context=self.context)
        except CannotFit:
            if self.keeps_first:
                raise
            return replace(budget, preserve_first_request=False).curate(made, context=self.context)

    def _required(self) -> dict[int, str]:
        """The places that must be in the view, each with what it is."""
        source, keep = self.source, KeepSet.asked(self.context, self.source)
        required = dict.fromkeys(range(keep.lead(source)), "a leading system message")
        required |= dict.fromkeys(sorted(keep.pinned(source)), "a pinned message")
        if keep.last:
            required |= dict.fromkeys(range(keep.tail(source), len(source)), "one of the last messages")
        if source.newest_request is not None:
            required[source.newest_request] = "the newest request"
        if source.open_calls or (source.newest_request is None and len(source) > source.leading_system_count):
            required |= dict.fromkeys(last_exchange(source), "the exchange that is still open")
        return required

    def _is_in(self, sent: dict[int | None, Message], place: int) -> bool:
        root = self.source.position_of(place)
        message = sent.get(root)
        return root is None or message is self.source[place] or message == self.source[place]

    def _is_our_own(self, finding: Finding) -> bool:
        """Whether the record itself has this fault, so that no manager is to blame: an open call, an odd beginning."""
        if self._faults is None:
            found = check(self.record, provider=self.provider)
            self._faults = {(fault.kind, fault.index, fault.call_id) for fault in found}
        root = self.view.origins[finding.index] if self.view else 0
        return (finding.kind, root, finding.call_id) in self._faults

    def _broke(self, guarantee: Guarantee, detail: str) -> None:
        self.violations.append(Violation(guarantee, detail))


def _precedes(origin: int | None, root: int | None, message: Message) -> bool:
    """Whether a message of the view stands before the place in the record that `root` names."""
    if origin is None or root is None:
        return is_system(message)
    return origin < root
