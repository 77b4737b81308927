"""The view: the messages that one model call is sent, with the reason for every message that is changed or left out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any, Final

from minutebook.errors import InvalidSetting, require_type
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.compose import ObservableManager, composed, curated_view, managers_in, managers_of
from minutebook.history.curation import Curated, tokens_of_view
from minutebook.history.explanation import Explanation, ExplanationLine, explain
from minutebook.history.guarantees import guard
from minutebook.history.protocol import NO_CONTEXT, CurationContext, HistoryManager, SessionProtocol, Violation
from minutebook.record.fold import Fold, record_with_folds
from minutebook.record.message import Message, Provider, refuse_recursion
from minutebook.record.repairs import repair
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter
from minutebook.wire.read import read
from minutebook.wire.write import anthropic_arguments, openai_messages, responses_arguments

_EXPECTED_LIMIT: Final = "a number of tokens such as 8_000, a manager, or a list of managers"


@dataclass(frozen=True, slots=True, repr=False)
class View:
    """The messages of one model call. Positions are those of the record, also after folds and cuts."""

    curated: Curated
    """The messages in chat format, with the position of each in the record. `messages` has them ready to send."""
    record: Transcript
    violations: tuple[Violation, ...] = ()
    """The guarantees that the view would have violated without repairs of the manager's result or of the record."""
    hidden: Mapping[int, Fold] = field(default_factory=dict)
    """Position of each message that a fold hides → the fold."""
    provider: Provider = "openai"
    max_tokens: int | None = None
    """The token limit; None if there is none."""
    number: int | None = None
    """The number of the recorded request; None if it was not recorded."""
    offset: int = 0
    """The number of system messages that `view_of` put before the caller's messages."""
    length: int = 0
    """The number of messages that the record had when the view was built. It may have grown since then."""

    @property
    def messages(self) -> list[Any]:
        """The messages ready to send, in Anthropic's format if that is the provider, else in chat-completions format.

        Keys that only minutebook reads are removed. Other unknown keys of chat messages, such as `cache_control`, stay,
        because some servers with a chat API need them.
        """
        if self.provider == "anthropic":
            messages: list[Any] = anthropic_arguments(self.curated)["messages"]
            return messages
        return openai_messages(self.curated)

    def openai(self) -> dict[str, Any]:
        """Keyword arguments for `client.chat.completions.create`: `messages`.

        A view for Anthropic is repaired where OpenAI would reject it: a tool result there may have images, for example.
        """
        return {"messages": openai_messages(self._messages_for("openai"))}

    def anthropic(self) -> dict[str, Any]:
        """Keyword arguments for `client.messages.create`: `messages`, and `system` if there is a system message.

        A view of another provider is repaired where Anthropic would reject it. `view(provider="anthropic")` makes these
        repairs before it counts tokens, and reports them in `violations`.
        """
        return anthropic_arguments(self._messages_for("anthropic"))

    def _messages_for(self, provider: Provider) -> Sequence[Message]:
        is_valid = provider == self.provider or (provider == "openai" and self.provider != "anthropic")
        return self.curated if is_valid else repair(self.curated, provider=provider).messages

    def responses(self) -> dict[str, Any]:
        """Keyword arguments for `client.responses.create`: `input`, and `instructions` if there is a system message."""
        return responses_arguments(self.curated)

    @property
    def tokens(self) -> int:
        """Tokens of the view's messages, by the record's counter."""
        return tokens_of_view(self.record, self.curated)

    def explain(self, *, previous: "View | None" = None) -> Explanation:
        """For every message of the record, whether it is included, changed or left out, and why."""
        previous_messages = None if previous is None else previous.curated
        explanation = explain(self.record, self.curated, previous=previous_messages, hidden=self.hidden)
        if len(self.record) == self.length:
            return explanation
        lines = (line for line in explanation.lines if line.index is None or line.index < self.length)
        return replace(explanation, lines=tuple(lines))

    def why(self, position: int) -> ExplanationLine:
        """What the view does with the message at a position of the record, and why.

        Raises:
            InvalidSetting: the record had no such message.
        """
        if not -len(self) <= position < len(self):
            last = f"0 to {len(self) - 1}" if len(self) else "no position"
            raise InvalidSetting("position", position, f"{last}: the view is of {len(self):,} messages")
        index = range(len(self))[position] + self.offset
        return next(line for line in self.explain().lines if line.index == index)

    def __getitem__(self, position: int) -> ExplanationLine:
        if not isinstance(position, int):
            expected = "a position of the record, as in view[17]; view.messages is the list of messages to send"
            raise InvalidSetting("position", position, expected)
        return self.why(position)

    def __len__(self) -> int:
        """The number of positions of the record for which `view[position]` says what happened."""
        return self.length - self.offset

    def __iter__(self) -> Iterator[ExplanationLine]:
        return (line for line in self.explain().lines if line.index is not None and line.index >= self.offset)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        number = "" if self.number is None else f" {self.number}"
        limit = "" if self.max_tokens is None else f" of {self.max_tokens:,}"
        return f"<View{number}: {len(self.curated):,} of {self.length:,} messages, {self.tokens:,}{limit} tokens>"


def view_of(
    messages: Sequence[Message],
    limit: int | HistoryManager | Sequence[HistoryManager] | None = None,
    *,
    system: str | None = None,
    session: SessionProtocol | None = None,
    context: CurationContext | None = None,
    folds: Sequence[Fold] = (),
    max_tokens: int | None = None,
    provider: Provider = "openai",
    counter: TokenCounter | None = None,
    strict: bool = False,
    keep_parts: bool = False,
) -> View:
    """The view of a list of messages, in the format of chat completions, Anthropic or Responses, or of a `Transcript`.

    `limit` is a number of tokens, a manager, or several managers that are applied in order. `system` is put before the
    messages. `max_tokens` limits the view whatever the manager does. With `keep_parts`, parts of content that the provider
    may not support are sent unchanged, for servers that accept more than the provider does.

    Raises:
        CannotFit: the messages that must be in the view exceed the limit.
        InvalidMessage: a message has an unknown format.
        InvalidSetting: the limit is neither a number nor a manager.
        GuaranteeViolated: `strict` is set, and the manager's view violates a guarantee.
        PromptEvaluationError: the manager raised; its error is the `__cause__`.
        RecordIsReadOnly: the manager tried to change a message in place.
    """
    _require_types(system, context, folds, max_tokens, counter)
    if isinstance(limit, int) and not isinstance(limit, bool):
        if limit < 1:
            raise InvalidSetting("limit", limit, _EXPECTED_LIMIT)
        max_tokens = limit if max_tokens is None else min(limit, max_tokens)
        managers: tuple[HistoryManager, ...] = (TokenBudgetManager(limit),)
    elif limit is None:
        managers = ()
    else:
        managers = _managers(limit)
    record, offset = _record(messages, system, counter)
    manager, context = composed(managers), context or NO_CONTEXT
    observer = manager if isinstance(manager, ObservableManager) else None
    manager = manager if observer is None else observer.inner
    with record.lock:
        folded = record_with_folds(record, folds)
        curated = curated_view(manager, folded.transcript, session, context)
        guarded = guard(
            folded.transcript,
            curated,
            manager=manager,
            provider=provider,
            max_tokens=lowest_limit(manager, max_tokens, record.counter),
            context=context,
            strict=strict,
            keep_parts=keep_parts,
        )
        view = View(
            *(guarded.view, record, guarded.violations, folded.hidden, provider, max_tokens),
            offset=offset,
            length=len(record),
        )
    if observer is not None:
        observer.publish(
            *(view.length, len(view.curated), session),
            tokens_before=record.tokens,
            tokens_after=view.tokens,
            violations=view.violations,
        )
    return view


def lowest_limit(manager: HistoryManager, max_tokens: int | None, counter: TokenCounter) -> int | None:
    """Maximum tokens of a view, by this counter: the lowest of `max_tokens` and the managers' limits; None if there is none."""
    budgets = [part for part in managers_in(manager) if isinstance(part, TokenBudgetManager)]
    limits = [budget.limit for budget in budgets if budget.counter in (None, counter)]
    return min([*limits, *([] if max_tokens is None else [max_tokens])], default=None)


def _require_types(
    system: object, context: object, folds: Iterable[object], max_tokens: object, counter: object
) -> None:
    require_type("system", system, (str, NoneType), "the text of a system message")
    require_type("context", context, (CurationContext, NoneType), "a CurationContext")
    require_type("max_tokens", max_tokens, (int, NoneType), "a number of tokens such as 8_000")
    if counter is not None and not callable(getattr(counter, "message", None)):
        raise InvalidSetting("counter", counter, "a token counter, such as counter_for('gpt-4o')")
    require_type("folds", folds, Sequence, "a list of folds")
    for fold in folds:
        require_type("folds", fold, Fold, "a list of folds")


def _managers(limit: Any) -> tuple[HistoryManager, ...]:
    try:
        return managers_of(limit)
    except InvalidSetting:
        raise InvalidSetting("limit", limit, _EXPECTED_LIMIT) from None


@refuse_recursion()
def _record(messages: Any, system: str | None, counter: TokenCounter | None) -> tuple[Transcript, int]:
    """The messages as a transcript, and the number of system messages put before them."""
    if isinstance(messages, Transcript):
        if system is not None:
            raise InvalidSetting("system", system, "None for a Transcript, which has its own system message")
        return messages, 0
    if isinstance(messages, str):
        raise InvalidSetting("messages", messages, "a list of messages")
    system_messages: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    return Transcript.of([*system_messages, *read(messages)], counter=counter), len(system_messages)
