"""What one model call is sent, with its reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minutebook.history.compose import PassthroughManager, curated_view
from minutebook.history.curation import Curated, tokens_of_view
from minutebook.history.explanation import Explanation, explain
from minutebook.history.guarantees import Violation, guard
from minutebook.history.protocol import NO_CONTEXT, CurationContext, HistoryManager, SessionProtocol
from minutebook.record.fold import Fold, record_with_folds
from minutebook.record.message import Message, Provider
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter


@dataclass(frozen=True, slots=True)
class View:
    """The messages of one model call, and everything there is to say about them."""

    messages: Curated
    """What to send."""
    record: Transcript
    violations: tuple[Violation, ...]
    """What the guard had to put right in the manager's view."""
    hidden: Mapping[int, Fold]
    """The messages of the record that folds stand for."""

    @property
    def tokens(self) -> int:
        """The tokens of its messages, by the record's counter."""
        return tokens_of_view(self.record, self.messages)

    def explain(self, *, previous: "View | None" = None) -> Explanation:
        """What became of every message of the record, and why."""
        before = None if previous is None else previous.messages
        return explain(self.record, self.messages, previous=before, hidden=self.hidden)


def view_of(
    messages: Sequence[Message],
    manager: HistoryManager | None = None,
    *,
    session: SessionProtocol | None = None,
    context: CurationContext | None = None,
    folds: Sequence[Fold] = (),
    max_tokens: int | None = None,
    provider: Provider = "openai",
    counter: TokenCounter | None = None,
    strict: bool = False,
) -> View:
    """The view of a conversation that keeps every promise: folds applied, curated by the manager, guarded.

    Raises:
        CannotFit: what must be in the view is larger than the budget.
        PromiseBroken: `strict`, and the manager's view breaks a promise.
        RecordIsReadOnly: the manager tried to change a message in place.
    """
    record = Transcript.of(messages, counter=counter)
    context = context or NO_CONTEXT
    with record.lock:
        shown = record_with_folds(record, folds)
        manager = manager or PassthroughManager()
        curated = curated_view(manager, shown.transcript, session, context)
        guarded = guard(
            shown.transcript,
            curated,
            manager=manager,
            provider=provider,
            max_tokens=max_tokens,
            context=context,
            strict=strict,
        )
    return View(guarded.view, record, guarded.violations, shown.hidden)
