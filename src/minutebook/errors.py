"""Every error minutebook raises on purpose. The reference has the tree of them.

An error declares its facts as fields, and `says` what they mean and what to do. Facts are positional, so every error
survives pickling.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from inspect import get_annotations
from typing import Any, ClassVar, Final, Self, dataclass_transform, get_origin

_KEPT_AS: Final[dict[Any, Any]] = {Sequence: tuple, Mapping: dict}
"""What a field is declared as → the type its value is kept as, so that nobody changes it later."""
_MOST_SHOWN = 20


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class MinutebookError(Exception):
    """The root of every error raised on purpose. A subclass with fields becomes a dataclass."""

    says: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if get_annotations(cls):
            dataclass(eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            value, kind = getattr(self, each.name), _KEPT_AS.get(get_origin(each.type))
            setattr(self, each.name, value if kind is None else kind(value))
        self.args = tuple(getattr(self, each.name) for each in fields(self) if each.init)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.says.format_map(vars(self)) if self.says else " ".join(map(str, self.args))


class InvalidSetting(MinutebookError, ValueError):
    """An option has a value that cannot be meant."""

    name: str
    value: Any
    expected: str
    says = "{name} is {value!r}; give {expected}"


class InvalidMessage(MinutebookError, ValueError):
    """A message lacks something that every message has, or has it in the wrong shape.

    `path` leads to the place (`tool_calls[0].function.name`), `index` to the message where that is known.
    """

    path: str
    problem: str
    index: int | None = None

    def __str__(self) -> str:
        where = "message" if self.index is None else f"message {self.index}"
        return f"{where}: {self.path} {self.problem}"


class BrokenConversation(MinutebookError, ValueError):
    """A message does not fit the ones before it, and the transcript was told to refuse such; nothing was appended."""

    findings: Sequence[Any]

    def __str__(self) -> str:
        said = "; ".join(map(str, self.findings))
        return f"{said}. Append what is missing first, repair the messages, or keep them with broken='mark'"


class RecordIsReadOnly(MinutebookError, TypeError):
    """A manager tried to change a message in place; the record is not its to change."""

    what: str
    says = "{what} on a message of the record; return a changed copy instead: {{**message, 'content': …}}"


class CannotFit(MinutebookError, ValueError):
    """What must be in the view is larger than the budget; no cut can help.

    `irreducible` names the parts that may not go, each with its index in the record and its tokens.
    """

    max_tokens: int
    needed: int
    irreducible: Sequence[tuple[str, int, int]]

    def __str__(self) -> str:
        largest = sorted(self.irreducible, key=lambda part: -part[2])[:4]
        parts = ", ".join(f"{name} (message {index}, {tokens:,} tokens)" for name, index, tokens in largest)
        return (
            f"the view needs {self.needed:,} tokens and may have {self.max_tokens:,}: {parts} must stay. "
            "Raise max_tokens, shorten these, or unpin what may go"
        )


class PromiseBroken(MinutebookError):
    """A manager returned a view that breaks what every view promises, and the guard is strict."""

    breaches: Sequence[Any]

    def __str__(self) -> str:
        said = "; ".join(map(str, self.breaches))
        return f"{said}. Mend the manager, or let the guard repair its views with strict=False"


class UnknownName(MinutebookError, LookupError):
    """Nothing of that kind goes by that name; `otherwise` is what to do where none of the known ones is meant."""

    kind: str
    name: str
    known: Sequence[str]
    otherwise: str = ""

    def __str__(self) -> str:
        near = closest(str(self.name), self.known)
        choose = "choose" if near is None else f"did you mean {near!r}? Choose"
        known = f"one of {', '.join(self.known)}" if self.known else "another"
        return f"no {self.kind} {self.name!r}; {choose} {known}{self.otherwise and f', or {self.otherwise}'}"


class MissingExtra(MinutebookError, ImportError):
    """An optional dependency is needed and not installed."""

    module: str
    extra: str
    says = "{module} is not installed; pip install 'minutebook[{extra}]'"


class UnreadableInput(MinutebookError, ValueError):
    """A file or stream does not hold conversations in a form we read."""

    source: str
    problem: str
    line: int | None = None

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{where}: {self.problem}"


class InvalidConfig(MinutebookError, ValueError):
    """A configuration has a key that is not known, or a value that cannot be meant; `others` are its other problems.

    `file` is the environment variable or the flag where it was said there; line and column count from 1.
    """

    file: str
    line: int | None
    column: int | None
    key: str
    problem: str
    hint: str = ""
    others: Sequence["InvalidConfig"] = ()

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        parts = (self.problem, self.key) if self.problem == "unknown key" else (self.key, self.problem)
        said = f"{where}: {' '.join(filter(None, parts))}{f'; {self.hint}' if self.hint else ''}"
        return "\n".join([said, *map(str, self.others)])


class ProgramInvalid(MinutebookError, ValueError):
    """A program of the agent language cannot be compiled; `diagnostics` say where and why."""

    source: str
    diagnostics: Sequence[Any]

    def __str__(self) -> str:
        return "\n".join(map(str, self.diagnostics)) or f"{self.source} is not a program of the agent language"


class FlowFailed(MinutebookError, ValueError):
    """A flow came upon a value that a statement of it cannot use."""

    source: str
    flow: str
    line: int
    problem: str
    says = "{source}:{line}: flow {flow!r}: {problem}"


class ToolServerFailed(MinutebookError, ConnectionError):
    """A server of tools does not start, or does not answer."""

    tool: str
    where: str
    problem: str
    says = "tool {tool!r}: {where} does not answer as an MCP server: {problem}"


class EventFailed(MinutebookError, ExceptionGroup[Exception]):
    """Some of those that an event reached failed; `exceptions` are their errors."""

    def __new__(cls, event_type: str, exceptions: Sequence[Exception]) -> Self:
        said = "; ".join(f"{type(error).__name__}: {error}" for error in exceptions)
        message = (
            f"{len(exceptions)} of those that took {event_type} failed: {said}. "
            "The others have taken it: mend these, and hand it to them alone"
        )
        return super().__new__(cls, message, exceptions)

    def __init__(self, event_type: str, exceptions: Sequence[Exception]) -> None:
        super().__init__(event_type, tuple(exceptions))
        self.event_type = event_type

    def __str__(self) -> str:
        return self.message

    def derive(self, excs: Sequence[Exception], /) -> "EventFailed":  # type: ignore[override]
        """A part of the group, as `except*` makes it."""
        return EventFailed(self.event_type, excs)


class LogIsAppendOnly(MinutebookError, TypeError):
    """Something would have removed or changed what a LOG slice holds; nothing was changed."""

    slice_type: str
    attempt: str
    says = "{attempt} would change the log of {slice_type}, which only grows; append to it instead"


class ReducerFailed(MinutebookError):
    """A reducer raised (its error is the `__cause__`), or returned what is no slice; no slice was changed."""

    reducer: str
    slice_type: str
    event: object
    problem: str

    def __str__(self) -> str:
        return (
            f"{self.reducer}, which reduces {type(self.event).__name__} into {self.slice_type}, failed: {self.problem}. "
            "No slice was changed; mend the reducer and dispatch the event again"
        )


class NoReducer(MinutebookError, LookupError):
    """An event was dispatched that nothing reduces, so it would have changed nothing."""

    event_type: str
    slice_type: str | None
    known: Sequence[str]

    def __str__(self) -> str:
        into = f" into {self.slice_type}" if self.slice_type else ""
        return (
            f"nothing reduces {self.event_type}{into}; register what should: "
            f"session.mutate({self.slice_type or '…'}).register({self.event_type}, reducer). "
            f"Reduced{into}: {', '.join(self.known) or 'nothing yet'}"
        )


class UnsupportedType(MinutebookError, TypeError):
    """A type has no JSON form that we know, so it can be neither described to a model nor read from its answer."""

    where: str
    what: str
    advice: str
    says = "{where} is {what}, which cannot be told to a model as JSON; {advice}"


class InvalidPrompt(MinutebookError, ValueError):
    """A prompt cannot be put together or rendered; `where` is the section, template or tool that is at fault."""

    where: str
    problem: str
    says = "{where} {problem}"


class ToolValidationError(MinutebookError, ValueError):
    """A tool was called in a way it cannot be; the message goes back to the model, which may try again.

    Handlers raise it with a message of their own. `problems` lists what is wrong with the arguments, place by place.
    """

    message: str
    problems: Sequence[Any] = ()

    def __str__(self) -> str:
        return _with_problems(self.message, self.problems)


class OutputParseError(MinutebookError, ValueError):
    """The model's answer does not hold what was asked for; the message can be sent back to it as it is."""

    expected: str
    answer: str
    problems: Sequence[Any]

    def __str__(self) -> str:
        came = self.answer if len(self.answer) <= 200 else f"{self.answer[:200]}…"
        said = _with_problems(f"The answer is not a valid {self.expected}:", self.problems)
        return f"{said}\nIt was: {came}\nAnswer again with one JSON object for {self.expected} and nothing else."


class VisibilityExpansionRequired(MinutebookError):
    """The model asks for sections to be opened: merge `requested_overrides` into yours and render again."""

    requested_overrides: Mapping[tuple[str, ...], Any]
    reason: str
    section_keys: Sequence[str]

    def __str__(self) -> str:
        keys = ", ".join(self.section_keys)
        return (
            f"the model asks to open {keys} ({self.reason}); "
            "merge requested_overrides into visibility_overrides and render the prompt again"
        )


class PromptEvaluationError(MinutebookError):
    """Something that is not ours failed while a prompt was evaluated; its own error is the `__cause__`.

    `phase` is "request" (the manager, the compaction hook), "record" (someone who listens to what is recorded) or
    "response". What was said before is in the record, with no call left open.
    """

    prompt_name: str
    phase: str
    problem: str
    says = "the evaluation of prompt {prompt_name!r} failed in its {phase} phase: {problem}"


class ProviderFailed(MinutebookError):
    """The provider answered with an error, or did not answer; `status` is None where there was no answer at all."""

    provider: str
    status: int | None
    problem: str
    retry_after_seconds: float | None = None
    retryable: bool = False

    def __str__(self) -> str:
        said = "did not answer" if self.status is None else f"answered {self.status}"
        return f"{self.provider} {said}: {self.problem}"


class ContextOverflow(ProviderFailed):
    """The provider finds the prompt longer than the model's context window."""

    status: int | None = field(default=400, init=False)
    retry_after_seconds: float | None = field(default=None, init=False)
    retryable: bool = field(default=False, init=False)
    tokens: int | None = None
    maximum: int | None = None


class RetriesExhausted(ProviderFailed):
    """The provider went on failing until there was no attempt or no time left; the last failure is the `__cause__`."""

    retry_after_seconds: float | None = field(default=None, init=False)
    retryable: bool = field(default=False, init=False)
    attempts: int
    waited_seconds: float

    def __str__(self) -> str:
        return (
            f"{super().__str__()} ({self.attempts} attempts, {self.waited_seconds:.1f} s waited between them); "
            "try later, or give Throttle more attempts or a larger total_seconds"
        )


class DeadlineExceeded(MinutebookError, TimeoutError):
    """An evaluation ran out of time; what was said until then is in the record."""

    what: str
    expired_at: str
    says = "{what} was not done by its deadline, {expired_at}; give it a later one, or less to do"


class BudgetExceeded(MinutebookError):
    """An evaluation has used, or with its next call would use, more tokens than its budget has."""

    kind: str
    used: int
    limit: int
    says = "{used:,} {kind} tokens are more than the budget of {limit:,}; raise it, or do less"


class TooManyCalls(MinutebookError):
    """A model went on calling tools for as many requests as it may make, without an answer."""

    prompt_name: str
    calls: int
    says = (
        "prompt {prompt_name!r} had no answer after {calls} calls of the model; look whether it repeats itself, or "
        "raise max_calls"
    )


class ConversationNotFound(MinutebookError, LookupError):
    """There is no conversation of that id, or it is another tenant's."""

    conversation: str
    says = "no conversation {conversation!r}; the first append to an id makes one"


class ConversationErased(ConversationNotFound):
    """The conversation was erased, and nothing may be written to its id again."""

    says = "conversation {conversation!r} was erased; begin another, under another id"


class VersionConflict(MinutebookError):
    """Somebody else appended since the caller last read; nothing was written."""

    conversation: str
    actual: int
    expected: int
    says = "conversation {conversation!r} is at version {actual}, not {expected}; load it again and retry"

    def __str__(self) -> str:
        if self.expected == 0:
            return f"conversation {self.conversation!r} is there already, at version {self.actual}; choose another id"
        return super().__str__()


class IdempotencyConflict(MinutebookError, ValueError):
    """An idempotency key came before with other messages; nothing was written."""

    conversation: str
    key: str
    says = (
        "the key {key!r} came with other messages to conversation {conversation!r} before; a retry repeats the "
        "same messages, anything else needs its own key"
    )


class DocumentNotFound(MinutebookError, LookupError):
    """There is no document of that kind and id, or it has expired, or it is another tenant's."""

    kind: str
    document_id: str
    says = "no document {document_id!r} of kind {kind!r}; it was never put there, was deleted or expired"


class DocumentExists(MinutebookError, ValueError):
    """There is another document of that kind and id; nothing was written."""

    kind: str
    document_id: str
    conversation: str
    says = (
        "conversation {conversation!r} has another document {document_id!r} of kind {kind!r}; choose another id, "
        "or replace it there"
    )


class ConversationBusy(MinutebookError):
    """Somebody else has the lease on a conversation, `until` then or until they release it."""

    conversation: str
    until: datetime

    def __str__(self) -> str:
        return (
            f"somebody else is at work on conversation {self.conversation!r}, until {self.until.isoformat()} at most; "
            "try again later"
        )


class LeaseLost(MinutebookError):
    """A lease ran out, was released or is another's by now; nothing was written."""

    conversation: str
    holder: str
    fence: int
    says = (
        "the lease {fence} of {holder!r} on conversation {conversation!r} stands no longer; stop, and acquire it "
        "anew before going on"
    )


class FoldNotFound(MinutebookError, LookupError):
    """The conversation has no fold of that id."""

    conversation: str
    fold_id: str
    says = "conversation {conversation!r} has no fold {fold_id!r}"


class FoldConflict(MinutebookError, ValueError):
    """A fold cannot stand where it would, or cannot be taken away; nothing was changed."""

    conversation: str
    fold_id: str
    problem: str

    def __str__(self) -> str:
        what = f"fold {self.fold_id!r} of " if self.fold_id else ""
        return f"{what}conversation {self.conversation!r}: {self.problem}. Load it again and make the fold anew"


class SummaryRejected(MinutebookError, ValueError):
    """A summary is not fit to stand for what was said; nothing was changed."""

    problem: str
    says = "the summary {problem}; nothing was changed, summarise again"


class WrongKey(MinutebookError, ValueError):
    """A data key was wrapped by a master key that was not given. Keys are named by a few digits of their hash."""

    wanted: str
    given: str

    def __str__(self) -> str:
        return (
            f"what is stored was encrypted under master key {self.wanted or '(none)'}, and {self.given} was given;"
            " give that one, or add it to old_keys"
        )


class RequestRefused(MinutebookError, ValueError):
    """The service does not carry out an HTTP request; `status`, `code` and `param` are what its answer says.

    `problem` goes to the client and into logs: it quotes nothing that came in.
    """

    status: int
    problem: str
    code: str
    param: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    says = "{problem}"


class StoreUnavailable(MinutebookError, ConnectionError):
    """The store cannot be reached, is busy for too long, or is closed. What was not answered may be tried again."""

    store: str
    problem: str
    says = "{store}: {problem}; try again"


class StoreFull(StoreUnavailable):
    """There is no room for more; nothing was written, and what is there can be read."""

    says = "{store}: {problem}; make room and try again, nothing was written"


class StoreReadOnly(StoreUnavailable):
    """The store can be read and not written."""

    says = "{store}: {problem}; make it writable and try again, nothing was written"


class StoreDamaged(StoreUnavailable):
    """What the store holds is not what a store writes."""

    says = "{store}: {problem}; open another, or bring back a copy"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant: one that is spelled like it, or has a word that is (`token_budget`)."""
    from difflib import get_close_matches

    names = [each for each in known if each != name]
    lower = {each.lower(): each for each in names}
    words = {word: each for each in reversed(names) for word in each.split("_")}
    near = next(iter(get_close_matches(name, names, n=1)), None)
    word = next(iter(get_close_matches(name, words, n=1)), "")
    return lower.get(name.lower()) or words.get(name.lower()) or near or words.get(word)


def one_of(known: Sequence[str], name: str) -> str:
    """What an `InvalidSetting` expects in place of a name that is not known."""
    near = closest(name, known)
    return f"one of {', '.join(known)}{'' if near is None else f'; did you mean {near!r}?'}"


def _with_problems(message: str, problems: Sequence[Any]) -> str:
    lines = [message, *(f"- {problem}" for problem in problems[:_MOST_SHOWN])]
    if len(problems) > _MOST_SHOWN:
        lines.append(f"- and {len(problems) - _MOST_SHOWN} more")
    return "\n".join(lines)
