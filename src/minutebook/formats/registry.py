"""The table of formats, detection, and conversion from one format to another."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from minutebook.errors import InvalidMessage, InvalidSetting, MinutebookError, UnreadableInput
from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, Writer, describe, text_id
from minutebook.formats.losses import losses
from minutebook.formats.messages import with_call_ids
from minutebook.formats.requests.chat import messages_of
from minutebook.formats.requests.settings import converted_settings
from minutebook.formats.source import Source
from minutebook.formats.value_errors import MALFORMED, problem_of, shape_test, skip_malformed
from minutebook.record.message import Message

GROUP: Final = "minutebook.formats"
"""The group of entry points that add formats."""
_READ_KEYS: Final = frozenset({"role", "content", "tool_calls", "tool_call_id"})
"""Keys of a message that formats must read alike. Other keys are kept as details by formats that do not have them."""
_MODULES: Final = (
    "libraries.export",
    "libraries.database",
    "agents.claude_code",
    "agents.codex",
    "agents.gemini_cli",
    "agents.opencode",
    "agents.swe_trajectory",
    "agents.openhands",
    "agents.aider",
    "exports.open_webui",
    "exports.chatgpt",
    "exports.claude_ai",
    "exports.sharegpt",
    "libraries.langchain",
    "libraries.pydantic_ai",
    "libraries.openai_agents",
    "libraries.llm_logs",
    "libraries.adk",
    "requests.vercel",
    "requests.bedrock",
    "requests.gemini",
    "requests.chat",
    "requests.anthropic",
    "requests.responses",
)
"""Modules of the built-in formats. If formats match equally many values of a file, `_best_format` chooses one of them."""


@cache
def formats() -> Mapping[str, Format]:
    """All formats by name: those of other packages, then ours.

    Raises:
        InvalidSetting: an entry point is not a `Format`.
    """
    all_formats: dict[str, Format] = {}
    for entry_point in entry_points(group=GROUP):
        format_ = entry_point.load()
        if not isinstance(format_, Format):
            raise InvalidSetting(f"entry point {entry_point.name}", format_, "an instance of minutebook.formats.Format")
        all_formats[format_.name] = format_
    for module in _MODULES:
        members = vars(import_module(f"minutebook.formats.{module}"))
        for name in ("FORMAT", "DATABASE_FORMAT"):
            if isinstance(members.get(name), Format):
                all_formats.setdefault(members[name].name, members[name])
    return all_formats


def format_named(name: str) -> Format:
    """The format with that name.

    Raises:
        InvalidSetting: no format has that name.
    """
    all_formats = formats()
    if name not in all_formats:
        close_names = get_close_matches(name, all_formats, 1)
        hint = f"; did you mean {close_names[0]}?" if close_names else ""
        raise InvalidSetting("format", name, f"one of {', '.join(sorted(all_formats))}{hint}")
    return all_formats[name]


def detect(source: str | Path | bytes | Source) -> Format:
    """The format of a file, by its content.

    Raises:
        UnreadableInput: no format matches. The message says what the file begins with and which formats are supported.
    """
    if not isinstance(source, Source):
        source = Source(source)
    sample = source.sample()
    scores = {name: _score(candidate, sample) for name, candidate in formats().items() if candidate.kind == source.kind}
    best = max(scores.values(), default=0)
    if best:
        return formats()[_best_format([name for name in scores if scores[name] == best], sample, source.name)]
    supported = ", ".join(sorted(formats()))
    beginning = (
        "a SQLite database"
        if source.kind == "sqlite"
        else "text"
        if source.kind == "text"
        else describe(sample[0])
        if sample
        else "an empty list"
    )
    raise UnreadableInput(
        source.name,
        f"is in no known format: it begins with {beginning}; supported: {supported}; name the format with --from, or add one "
        f"with an entry point of the group {GROUP}",
    )


def _score(format_: Format, sample: list[Any]) -> int:
    """The number of values of a file that are parts of such a file."""
    matches, also_matches = list(map(shape_test(format_.matches), sample)), format_.also_matches
    if also_matches is None or not any(matches):
        return sum(matches)
    may_belong = shape_test(lambda value: also_matches(value, sample[0]))
    return sum(is_match or may_belong(value) for is_match, value in zip(matches, sample, strict=True))


def _best_format(names: Sequence[str], sample: list[Any], file: str) -> str:
    """The format of a file, if several match equally many of its values.

    Raises:
        UnreadableInput: nothing in the file shows which of them it is, and they would read different messages.
    """
    candidates = [formats()[name] for name in names]
    if len(names) == 1 or not candidates[0].evidence:
        return names[0]  # that format is recognized by its own shape, not only by messages that other APIs have too
    terms = list(_terms(sample))
    counts = [sum(term in candidate.evidence for term in terms) for candidate in candidates]
    if counts.count(max(counts)) == 1:
        return names[counts.index(max(counts))]
    readings = {name: _trial_read(sample, candidate) for name, candidate in zip(names, candidates, strict=True)}
    fewest = min(skipped for _, skipped in readings.values())
    best = {name: messages for name, (messages, skipped) in readings.items() if skipped == fewest}
    first = next(iter(best))
    if all(messages == best[first] for messages in best.values()):
        return first
    raise UnreadableInput(file, f"may be in the formats {' and '.join(names)}; name the one it is in with --from")


def _terms(sample: list[Any]) -> Iterator[str]:
    """The keys and roles of each request, message and tool in the values of a file."""
    for value in sample:
        request = value.get("body", value.get("params", value)) if isinstance(value, Mapping) else {}
        tools = request.get("tools") if isinstance(request, Mapping) else None
        objects = [value, request, *(messages_of(value) or []), *(tools if isinstance(tools, list) else ())]
        for mapping in objects:
            if isinstance(mapping, Mapping):
                yield from mapping
                yield f"role {mapping.get('role')}"


def _trial_read(sample: list[Any], format_: Format) -> tuple[list[list[Message]], int]:
    """What a format reads in the values of a file: the messages without details and empty content, and how much it skips."""
    source = Source(json.dumps(sample).encode())
    conversations: list[SourceConversation] = []
    with skip_malformed(source, "the file"):
        conversations = list(format_.read(source))
    messages: list[list[Message]] = [
        [
            {key: message[key] for key in _READ_KEYS & message.keys() if message[key]}
            for message in conversation.messages
        ]
        for conversation in conversations
    ]
    return messages, len(source.skipped)


def read(source: str | Path | bytes | Source, format: str | None = None) -> Iterator[SourceConversation]:  # noqa: A002 - the natural name for callers
    """The conversations of a file, one at a time. Pass a `Source`: its `skipped` lists the parts that were not understood.

    Raises:
        UnreadableInput: the format is not known, or nothing in the file was understood.
        InvalidSetting: there is no format of that name.
    """
    if not isinstance(source, Source):
        source = Source(source)
    format_ = detect(source) if format is None else format_named(format)
    if format_.kind != source.kind:
        raise UnreadableInput(source.name, f"is not in the format {format_.name}, which is {format_.kind}")
    is_understood = False
    try:
        for conversation in format_.read(source):
            if conversation.items or conversation.place:  # a recognised value may have no messages
                is_understood = True
                yield _with_valid_facts(_with_call_ids(conversation, format_), format_.name)
    except InvalidMessage as error:
        raise UnreadableInput(source.name, f"is malformed: {error}") from error
    except MinutebookError:
        raise
    except MALFORMED as error:
        raise UnreadableInput(source.name, f"is malformed: {problem_of(error)}") from error
    if not is_understood:
        reasons = "; ".join(map(str, source.skipped[:3]))
        problem = f"contains no conversation in the format {format_.name}" + (f": {reasons}" if reasons else "")
        raise UnreadableInput(source.name, f"{problem}; `minutebook formats` lists the formats that can be read")


def _with_call_ids(conversation: SourceConversation, format_: Format) -> SourceConversation:
    """The conversation with an id for each call, unless its messages are read unchanged."""
    if format_.has_api_messages:
        return conversation
    messages, new_ids = with_call_ids(conversation.messages)
    if not new_ids:
        return conversation
    items = [replace(item, message=message) for item, message in zip(conversation.items, messages, strict=True)]
    return replace(conversation, items=items)


def _with_valid_facts(conversation: SourceConversation, format_name: str) -> SourceConversation:
    """The conversation without facts of another type than they should have. They are not a part of the messages."""
    items = [
        item
        if _is_valid(item.model, str) and _is_valid(item.usage, Mapping)
        else replace(item, model=text_id(item.model), usage=item.usage if isinstance(item.usage, Mapping) else None)
        for item in conversation.items
    ]
    facts: dict[str, Any] = {
        name: text_id(getattr(conversation, name)) for name in ("id", "title", "model", "branch_of")
    }
    return replace(conversation, items=items, format=format_name, **facts)


def _is_valid(value: Any, expected: type) -> bool:
    return value is None or isinstance(value, expected)


@dataclass(frozen=True, slots=True)
class Converted:
    """A conversation in another format."""

    value: Any
    """The JSON value."""
    lost: tuple[str, ...]
    """What the format cannot express: fields of the conversation, and by message: "message 3: reasoning_content"."""


def writer_of(target: Format) -> Writer:
    """The function that writes a format.

    Raises:
        InvalidSetting: the format cannot be written.
    """
    if target.write is None:
        writable = ", ".join(sorted(name for name, format_ in formats().items() if format_.write is not None))
        raise InvalidSetting("format", target.name, f"one that can be written: {writable}")
    return target.write


def convert(conversation: SourceConversation, format: str) -> Converted:  # noqa: A002 - the natural name for callers
    """The conversation in another format, and what that format cannot express.

    Raises:
        InvalidSetting: there is no format of that name, or it cannot be written.
        InvalidMessage: a message is malformed.
    """
    target = format_named(format)
    write = writer_of(target)
    if (
        conversation.format == target.name
        and conversation.original is not None
        and _read_back(conversation.original, target) == conversation.messages
    ):
        return Converted(conversation.original, ())
    messages, new_ids = with_call_ids(conversation.messages)
    items = [replace(item, message=message) for item, message in zip(conversation.items, messages, strict=True)]
    try:
        facts: dict[str, Any] = {} if conversation.format == target.name else {"data": {}, "original": None}
        settings, expressed = converted_settings(conversation.data, conversation.format, target.name)
        value = write(replace(conversation, items=items, **facts))
        if settings:
            value = {**value, **settings}
    except MALFORMED as error:
        raise InvalidMessage("", f"cannot be written as {target.name}: {problem_of(error)}") from error
    return Converted(value, (*losses(conversation, value, _read_back(value, target), expressed), *new_ids))


def with_messages(conversation: SourceConversation, items: Sequence[SourceMessage]) -> Any:
    """The value that a conversation was read from, with other messages. If the value was a list of messages, it is a list.

    Raises:
        InvalidSetting: the format cannot be written.
    """
    target = format_named(conversation.format)
    write = writer_of(target)
    if not isinstance(conversation.original, list) and conversation.place:
        return write(replace(conversation, items=list(items)))
    request = write(replace(conversation, items=list(items), data={target.list_name: None}))
    system = [{"role": "system", "content": request["system"]}] if "system" in request else []
    return [*system, *request[target.list_name]]


def _read_back(value: Any, target: Format) -> list[Message]:
    """The messages that are read from a written value."""
    source = Source(json.dumps([value] if isinstance(value, list) else value).encode(), name=target.name)
    return [message for conversation in target.read(source) for message in conversation.messages]
