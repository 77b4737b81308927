"""The view of one model call, with the reasons for what it leaves out."""

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
    """The messages of one model call, with the record and the folds from which they come."""

    messages: Curated
    """The messages to send."""
    record: Transcript
    violations: tuple[Violation, ...]
    """The violations that the guard repaired in the manager's view."""
    hidden: Mapping[int, Fold]
    """Index of each message of the record that is not shown → its fold."""

    @property
    def tokens(self) -> int:
        """Tokens of its messages, by the record's counter."""
        return tokens_of_view(self.record, self.messages)

    def explain(self, *, previous: "View | None" = None) -> Explanation:
        """Explain for every message of the record whether it is sent, and why."""
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
    """The view of a conversation: folds are applied, the manager curates, and the guard enforces the guarantees.

    Raises:
        CannotFit: the required messages exceed the budget.
        GuaranteeViolated: `strict` is set, and the manager's view violates a guarantee.
        RecordIsReadOnly: the manager tried to change a message of the record in place.
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
