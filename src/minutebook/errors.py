"""Every error that minutebook raises on purpose. The API reference shows the class hierarchy.

An error declares its details as fields; `template` builds the message, which says what is wrong and what to do. Fields
are positional arguments of the constructor, so every error survives pickling.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from inspect import get_annotations
from typing import Any, ClassVar, Final, Self, dataclass_transform, get_origin

_COPY_TYPES: Final[dict[Any, Any]] = {Sequence: tuple, Mapping: dict}
"""The declared type of a field → the type of the copy that the error stores, so that the caller's object is not shared."""
_MAX_PROBLEMS = 20


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class MinutebookError(Exception):
    """The root of every error raised on purpose. A subclass with fields becomes a dataclass."""

    template: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if get_annotations(cls):
            dataclass(eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        for detail in fields(self):  # type: ignore[arg-type]
            value, copy_type = getattr(self, detail.name), _COPY_TYPES.get(get_origin(detail.type))
            setattr(self, detail.name, value if copy_type is None else copy_type(value))
        self.args = tuple(getattr(self, detail.name) for detail in fields(self) if detail.init)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.template.format_map(vars(self)) if self.template else " ".join(map(str, self.args))


class InvalidSetting(MinutebookError, ValueError):
    """A setting or argument has an invalid value; `expected` describes the valid ones: "0 or more", "one of a, b"."""

    name: str
    value: Any
    expected: str
    template = "{name}={value!r}: expected {expected}"


class InvalidQuery(InvalidSetting):
    """A search query has a syntax that is not supported."""

    problem: str
    template = "{name} {value!r} {problem}; supported: {expected}. Put other text in quotation marks"


def require_type(name: str, value: object, types: type | tuple[type, ...], expected: str) -> None:
    """Raise `InvalidSetting` if the value has another type. True and False are no numbers."""
    if isinstance(value, bool) or not isinstance(value, types):
        raise InvalidSetting(name, value, expected)


class MissingSetting(MinutebookError, ValueError):
    """A required setting or argument is absent; `how_to_set` is what to write: "add --max-tokens 32000"."""

    what: str
    how_to_set: str
    template = "{what} is missing; {how_to_set}"


class InvalidMessage(MinutebookError, ValueError):
    """A field of a message is missing or has the wrong type.

    `path` is the field (`tool_calls[0].function.name`), or empty for the message itself. `index` is the message's index in
    the list, if known, and `value` the text in the field, if it helps. `problem` never quotes the message.
    """

    path: str
    problem: str
    index: int | None = None
    value: str | None = None

    def __str__(self) -> str:
        message = "message" if self.index is None else f"message {self.index}"
        field_name = f": {self.path}" if self.path else ""
        value = "" if self.value is None else f" {self.value!r}"
        return f"{message}{field_name}{value} {self.problem}"


class BrokenConversation(MinutebookError, ValueError):
    """A message breaks the pairing of tool calls and results, and the transcript or store rejects that; nothing was appended."""

    findings: Sequence[Any]
    advice: str = "Append the missing message first, or call repair()"

    def __str__(self) -> str:
        return f"{'; '.join(map(str, self.findings))}. {self.advice}"


class RecordIsReadOnly(MinutebookError, TypeError):
    """A manager tried to change a message of the record in place."""

    what: str
    template = (
        "{what} is not possible on a message of the record, which is read-only; return a changed copy: "
        "{{**message, 'content': …}}"
    )


class CannotFit(MinutebookError, ValueError):
    """The messages that must be in the view need more tokens than the budget.

    `irreducible` lists those messages: what each is, its index in the record (None if a fold shows it), its tokens.
    """

    max_tokens: int
    needed: int
    irreducible: Sequence[tuple[str, int | None, int]]

    def __str__(self) -> str:
        largest = sorted(self.irreducible, key=lambda part: -part[2])[:4]
        parts = ", ".join(
            f"{name} ({'in a fold' if index is None else f'message {index}'}, {tokens:,} tokens)"
            for name, index, tokens in largest
        )
        return (
            f"the view needs at least {self.needed:,} tokens, but max_tokens is {self.max_tokens:,}; cannot be left out: "
            f"{parts}. Raise max_tokens, shorten these messages, or unpin some"
        )


class GuaranteeViolated(MinutebookError):
    """A manager returned a view that violates a guarantee, and `strict` is set."""

    violations: Sequence[Any]

    def __str__(self) -> str:
        violations = "; ".join(map(str, self.violations))
        return f"{violations}. Fix the manager, or pass strict=False to have invalid views repaired"


class InvalidResult(MinutebookError, TypeError):
    """A manager or strategy of the application returned something else than messages or folds; nothing was changed."""

    method: str
    actual: str
    fix: str
    template = "{method} returned {actual}; {fix}"


class UnknownName(MinutebookError, LookupError):
    """No object of that kind has that name; `otherwise` says what to do if none of the known names is right."""

    kind: str
    name: str
    known: Sequence[str]
    otherwise: str = ""

    def __str__(self) -> str:
        suggestion = closest(str(self.name), self.known)
        choose = "choose" if suggestion is None else f"did you mean {suggestion!r}? Choose"
        known = f"one of {', '.join(self.known)}" if self.known else "another"
        return f"unknown {self.kind} {self.name!r}; {choose} {known}{self.otherwise and f', or {self.otherwise}'}"


class MissingExtra(MinutebookError, ImportError):
    """An optional dependency is not installed."""

    module: str
    extra: str
    template = "{module} is not installed; run: pip install 'minutebook[{extra}]'"


class UnreadableInput(MinutebookError, ValueError):
    """A file or stream is not in a format that minutebook can read."""

    source: str
    problem: str
    line: int | None = None

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{where}: {self.problem}"


class InvalidConfig(MinutebookError, ValueError):
    """A configuration has an unknown key or an invalid value; `others` are its further problems.

    `file` is the file, environment variable or command-line flag that the value came from. Line and column count from 1.
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
        message = f"{where}: {' '.join(filter(None, parts))}{f'; {self.hint}' if self.hint else ''}"
        return "\n".join([message, *map(str, self.others)])


class ProgramInvalid(MinutebookError, ValueError):
    """A program in the agent language does not compile; `diagnostics` lists the problems with their positions."""

    source: str
    diagnostics: Sequence[Any]

    def __str__(self) -> str:
        return "\n".join(map(str, self.diagnostics)) or f"{self.source} is not a program in the agent language"


class FlowFailed(MinutebookError, ValueError):
    """A statement of a flow got a value that it cannot use."""

    source: str
    flow: str
    line: int
    problem: str
    template = "{source}:{line}: flow {flow!r}: {problem}"


class ToolServerFailed(MinutebookError, ConnectionError):
    """An MCP server does not start or does not respond."""

    tool: str
    where: str
    problem: str
    template = "tool {tool!r}: the MCP server {where} does not respond: {problem}; check its command or URL"


class EventFailed(MinutebookError, ExceptionGroup[Exception]):
    """Some handlers of an event failed; `exceptions` are their errors."""

    def __new__(cls, event_type: str, exceptions: Sequence[Exception]) -> Self:
        errors = "; ".join(f"{type(error).__name__}: {error}" for error in exceptions)
        handlers = "1 handler" if len(exceptions) == 1 else f"{len(exceptions)} handlers"
        message = (
            f"{handlers} of {event_type} failed: {errors}. "
            "The other handlers ran; fix these and call them directly, do not publish the event again"
        )
        return super().__new__(cls, message, exceptions)

    def __init__(self, event_type: str, exceptions: Sequence[Exception]) -> None:
        super().__init__(event_type, tuple(exceptions))
        self.event_type = event_type

    def __str__(self) -> str:
        return self.message

    def derive(self, excs: Sequence[Exception], /) -> "EventFailed":  # type: ignore[override]
        """A subgroup, as `except*` creates it."""
        return EventFailed(self.event_type, excs)


class LogIsAppendOnly(MinutebookError, TypeError):
    """An operation would have removed or changed items of a LOG slice; nothing was changed."""

    slice_type: str
    attempt: str
    template = "{attempt} would change slice {slice_type}, which is an append-only log; append to it instead"


class ReducerFailed(MinutebookError):
    """A reducer raised (its error is the `__cause__`) or returned something other than a slice; no slice was changed."""

    reducer: str
    slice_type: str
    event: object
    problem: str

    def __str__(self) -> str:
        return (
            f"reducer {self.reducer} of {type(self.event).__name__} for slice {self.slice_type} failed: {self.problem}. "
            "No slice was changed; fix the reducer and dispatch the event again"
        )


class NoReducer(MinutebookError, LookupError):
    """An event was dispatched for which no reducer is registered."""

    event_type: str
    slice_type: str | None
    known: Sequence[str]

    def __str__(self) -> str:
        in_slice = f" in slice {self.slice_type}" if self.slice_type else ""
        return (
            f"no reducer for event {self.event_type}{in_slice}; register one with "
            f"session.mutate({self.slice_type or '…'}).register({self.event_type}, reducer). "
            f"Registered events: {', '.join(self.known) or 'none'}"
        )


class UnsupportedType(MinutebookError, TypeError):
    """A type has no JSON schema, so it cannot be described to a model or parsed from its answer."""

    where: str
    what: str
    advice: str
    template = "{where} has type {what}, which has no JSON schema; {advice}"


class InvalidPrompt(MinutebookError, ValueError):
    """A prompt cannot be built or rendered; `where` is the section, template or tool with the problem."""

    where: str
    problem: str
    template = "{where} {problem}"


class ToolValidationError(MinutebookError, ValueError):
    """A tool call has invalid arguments. The message is returned to the model, which may call the tool again.

    Handlers may raise it with their own message. `problems` lists the invalid arguments.
    """

    message: str
    problems: Sequence[Any] = ()

    def __str__(self) -> str:
        return _with_problems(self.message, self.problems)


class OutputParseError(MinutebookError, ValueError):
    """The model's answer does not match the output schema. The message can be sent to the model unchanged."""

    expected: str
    answer: str
    problems: Sequence[Any]

    def __str__(self) -> str:
        answer = self.answer if len(self.answer) <= 200 else f"{self.answer[:200]}…"
        problems = _with_problems(f"The answer is not a valid {self.expected}:", self.problems)
        return f"{problems}\nThe answer was: {answer}\nAnswer again with one JSON object for {self.expected} and nothing else."


class VisibilityExpansionRequired(MinutebookError):
    """The model requests that sections be opened: merge `requested_overrides` into your overrides and render again."""

    requested_overrides: Mapping[tuple[str, ...], Any]
    reason: str
    section_keys: Sequence[str]

    def __str__(self) -> str:
        keys = ", ".join(self.section_keys)
        return (
            f"the model requests to open sections {keys} ({self.reason}); "
            "merge requested_overrides into visibility_overrides and render the prompt again"
        )


class PromptEvaluationError(MinutebookError):
    """A user-supplied part failed while a prompt was evaluated; its error is the `__cause__`.

    `phase` is "request" (the manager, the compaction hook), "record" (a handler of recorded messages) or "response".
    Earlier messages are in the record, and every tool call in it has a result.
    """

    prompt_name: str
    phase: str
    problem: str
    template = "the evaluation of prompt {prompt_name!r} failed in the {phase} phase: {problem}"


class ProviderFailed(MinutebookError):
    """The provider returned an error or did not respond; `status` is None if there was no response."""

    provider: str
    status: int | None
    problem: str
    retry_after_seconds: float | None = None
    retryable: bool = False

    def __str__(self) -> str:
        outcome = "did not respond" if self.status is None else f"returned status {self.status}"
        return f"{self.provider} {outcome}: {self.problem}"


class ProviderRefused(ProviderFailed):
    """The provider rejected the request with a client error (4xx).

    `error` has the `message`, `type`, `code` and `param` of its response, `headers` those about retries and rate limits.
    """

    error: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


class ContextOverflow(ProviderFailed):
    """The provider rejected the request because it exceeds the model's context window."""

    status: int | None = field(default=400, init=False)
    retry_after_seconds: float | None = field(default=None, init=False)
    retryable: bool = field(default=False, init=False)
    tokens: int | None = None
    maximum: int | None = None


class RetriesExhausted(ProviderFailed):
    """Every attempt failed until the retry policy allowed no more; the last failure is the `__cause__`."""

    retry_after_seconds: float | None = field(default=None, init=False)
    retryable: bool = field(default=False, init=False)
    attempts: int
    waited_seconds: float

    def __str__(self) -> str:
        return (
            f"{super().__str__()} ({self.attempts} attempts, {self.waited_seconds:.1f} s waited between them); "
            "retry later, or set more attempts or a larger total_seconds in RetryPolicy"
        )


class DeadlineExceeded(MinutebookError, TimeoutError):
    """An evaluation exceeded its deadline; the messages up to then are in the record."""

    what: str
    expired_at: str
    template = "{what} exceeded its deadline of {expired_at}; set a later deadline"


class BudgetExceeded(MinutebookError):
    """An evaluation has used, or would use with its next call, more tokens than its budget."""

    kind: str
    used: int
    limit: int
    template = "{kind} token budget exceeded: {used:,} used, {limit:,} allowed; raise the budget"


class TooManyCalls(MinutebookError):
    """The model was called the maximum number of times (`max_calls`) without giving a final answer."""

    prompt_name: str
    calls: int
    template = (
        "prompt {prompt_name!r}: no final answer after {calls} model calls (max_calls); check for a tool loop or raise "
        "max_calls"
    )


class ConversationNotFound(MinutebookError, LookupError):
    """No conversation with that id exists, or another tenant owns it."""

    conversation: str
    template = "conversation {conversation!r} does not exist; check the id, or append a message to create it"


class ConversationErased(ConversationNotFound):
    """The conversation was erased; its id cannot be used again."""

    template = "conversation {conversation!r} was erased; use another id"


class RecipientBlocked(MinutebookError):
    """The recipient was erased with `block=True`, so no conversation with it can be created."""

    recipient: str
    template = "recipient {recipient!r} was erased and is blocked; call readmit to allow new conversations with it"


class VersionConflict(MinutebookError):
    """Another writer appended after the caller last loaded the conversation; nothing was written."""

    conversation: str
    actual: int
    expected: int
    template = "conversation {conversation!r} is at version {actual}, not {expected}; load it again and retry"

    def __str__(self) -> str:
        if self.expected == 0:
            return f"conversation {self.conversation!r} already exists, at version {self.actual}; choose another id"
        return super().__str__()


class IdempotencyConflict(MinutebookError, ValueError):
    """An idempotency key was already used with different messages; nothing was written."""

    conversation: str
    key: str
    template = (
        "idempotency key {key!r} was already used in conversation {conversation!r} with different messages; use a new "
        "key, or retry with the same messages"
    )


class DocumentNotFound(MinutebookError, LookupError):
    """No document of that kind and id exists: it was never stored, was deleted or has expired, or another tenant owns it."""

    kind: str
    document_id: str
    template = "no document {document_id!r} of kind {kind!r}; it was never stored, was deleted or has expired"


class RequestNotFound(DocumentNotFound):
    """A conversation has no recorded request with that number or id. `newest` is the number of the newest; 0: it has none."""

    conversation: str
    newest: int
    template = "conversation {conversation!r} has no request {document_id}; its newest request is {newest}"

    def __str__(self) -> str:
        if not self.newest:
            return f"conversation {self.conversation!r} has no request {self.document_id}; none was recorded"
        return super().__str__()


class DocumentExists(MinutebookError, ValueError):
    """A document of that kind and id already exists; nothing was written."""

    kind: str
    document_id: str
    conversation: str
    template = (
        "a document {document_id!r} of kind {kind!r} already exists in conversation {conversation!r}; choose another id, "
        "or replace it there"
    )


class ConversationBusy(MinutebookError):
    """Another holder has the lease on a conversation, at most until `until`."""

    conversation: str
    until: datetime

    def __str__(self) -> str:
        return f"conversation {self.conversation!r} is leased to another holder until {self.until.isoformat()}; retry later"


class LeaseLost(MinutebookError):
    """A lease was released or taken over by another holder; nothing was written."""

    conversation: str
    holder: str
    fence: int
    template = (
        "lease {fence} of holder {holder!r} on conversation {conversation!r} was released or taken over; stop writing "
        "and acquire a new lease"
    )


class FoldNotFound(MinutebookError, LookupError):
    """The conversation has no fold with that id."""

    conversation: str
    fold_id: str
    template = "conversation {conversation!r} has no fold {fold_id!r}"


class FoldConflict(MinutebookError, ValueError):
    """A fold cannot be applied or undone; nothing was changed."""

    conversation: str
    """The conversation's id; empty if the conversation is not stored yet or its id is not known."""
    fold_id: str
    problem: str
    advice: str = "reload the conversation and create the fold again"

    def __str__(self) -> str:
        names = {"fold": self.fold_id, "conversation": self.conversation}
        where = " of ".join(f"{kind} {name!r}" for kind, name in names.items() if name)
        return f"{where}: {self.problem}; {self.advice}"


class SummaryRejected(MinutebookError, ValueError):
    """A summary is unusable: empty, too long, or not a summary; nothing was changed."""

    problem: str
    template = "the summary {problem}; nothing was changed, summarize again"


class MissingKey(MinutebookError, ValueError):
    """The database is encrypted, and it was opened without a key."""

    store: str
    key_id: str
    template = (
        "{store} is encrypted with master key {key_id}; give the key: add ?encryption_key_file=FILE to the URL, "
        "set MINUTEBOOK_ENCRYPTION_KEY_FILE, or pass encryption_key to open_store"
    )


class WrongKey(MinutebookError, ValueError):
    """The data is encrypted with a master key that was not given. Keys are identified by a few digits of their hash."""

    expected: str
    actual: str

    def __str__(self) -> str:
        return (
            f"the data is encrypted with master key {self.expected or '(none)'}, but the key given is {self.actual}; "
            f"use {self.expected or 'the right key'} or add it to old_keys"
        )


class RequestRefused(MinutebookError, ValueError):
    """The service rejects an HTTP request; `status`, `code` and `param` are in the response.

    `problem` is sent to the client and logged, so it never quotes the request.
    """

    status: int
    problem: str
    code: str
    param: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    template = "{problem}"


class StoreUnavailable(MinutebookError, ConnectionError):
    """The store is unreachable, was busy for too long, or is closed. Operations that failed may be retried."""

    store: str
    problem: str

    _advice: ClassVar[str] = "retry"

    def __str__(self) -> str:
        if self.problem == "is closed":
            return f"{self.store} is closed; open it again"
        return f"{self.store}: {self.problem}; {self._advice}"


class StoreFull(StoreUnavailable):
    """The disk or the configured memory is full; nothing was written, and reading still works."""

    _advice = "nothing was written; free some space and retry"


class StoreReadOnly(StoreUnavailable):
    """The store can be read but not written."""

    _advice = "nothing was written; make it writable and retry"


class StoreDamaged(StoreUnavailable):
    """The stored data is corrupt, or the file is not a minutebook database."""

    _advice = "restore a backup or open another file"


class StoreRejected(StoreUnavailable):
    """The store refused the operation for a lasting reason, such as a missing right, folder or table."""

    _advice = "a retry would fail too"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name with the most similar spelling, or with a similar word in it (`budget` → `token_budget`)."""
    from difflib import get_close_matches

    candidates = [candidate for candidate in known if candidate != name]
    by_lower_case = {candidate.lower(): candidate for candidate in candidates}
    by_word = {word: candidate for candidate in reversed(candidates) for word in candidate.split("_")}
    similar = next(iter(get_close_matches(name, candidates, n=1)), None)
    similar_word = next(iter(get_close_matches(name, by_word, n=1)), "")
    return by_lower_case.get(name.lower()) or by_word.get(name.lower()) or similar or by_word.get(similar_word)


def one_of(known: Sequence[str], name: str) -> str:
    """The `expected` text of an `InvalidSetting` for an unknown name."""
    suggestion = closest(name, known)
    return f"one of {', '.join(known)}{'' if suggestion is None else f'; did you mean {suggestion!r}?'}"


def _with_problems(message: str, problems: Sequence[Any]) -> str:
    lines = [message, *(f"- {problem}" for problem in problems[:_MAX_PROBLEMS])]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"- and {len(problems) - _MAX_PROBLEMS} more")
    return "\n".join(lines)
