"""Messages: mappings in the OpenAI chat-completions format, and functions that read them.

A plain `dict` is a message. Only this module knows the keys of the role, the tool calls and the call that a result
answers; other modules use its functions.

`frozen_copy` makes a read-only copy for code outside minutebook, such as a user's history manager. It consists of dicts
and lists, so that `json.dumps` and `{**message}` work; changing it raises `RecordIsReadOnly`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, Literal, NoReturn, NotRequired, TypeAlias, TypedDict, TypeVar

from minutebook.errors import InvalidMessage, RecordIsReadOnly

K = TypeVar("K")
V = TypeVar("V")
JSON_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
"""Types of JSON values that contain no other values.

Copies look a value's type up here first, because that is much faster than `isinstance(value, Mapping)`.
"""


def _read_only_method(operation: str) -> Any:
    """A method that raises `RecordIsReadOnly` for this operation."""

    def raise_read_only(_self: object, *_args: object, **_kwargs: object) -> NoReturn:
        raise RecordIsReadOnly(operation)

    raise_read_only.__name__ = operation
    return raise_read_only


class FrozenDict(dict[K, V]):
    """A read-only dict."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _read_only_method("assignment")
    clear, pop, popitem, setdefault, update = map(
        _read_only_method, ("clear", "pop", "popitem", "setdefault", "update")
    )

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[V]):
    """A read-only list."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _read_only_method("assignment")
    append, clear, extend, insert = map(_read_only_method, ("append", "clear", "extend", "insert"))
    pop, remove, reverse, sort = map(_read_only_method, ("pop", "remove", "reverse", "sort"))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


def frozen_copy(value: Any) -> Any:
    """A read-only copy of JSON data."""
    if type(value) in JSON_SCALARS:
        return value
    if isinstance(value, Mapping):
        return FrozenDict((key, frozen_copy(inner)) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return FrozenList(frozen_copy(inner) for inner in value)
    return value


def plain_copy(value: Any) -> Any:
    """A copy of JSON data in plain dicts and lists."""
    if type(value) in JSON_SCALARS:
        return value
    if isinstance(value, Mapping):
        return {key: plain_copy(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_copy(inner) for inner in value]
    return value


@contextmanager
def refuse_recursion() -> Iterator[None]:
    """Raise `InvalidMessage` instead of `RecursionError`, where messages are read from a caller."""
    try:
        yield
    except RecursionError:
        raise InvalidMessage("", "contains itself or is nested too deep; expected JSON data") from None


Message: TypeAlias = Mapping[str, Any]
"""One provider message. `ChatMessage` lists the keys that minutebook reads; all other keys are preserved."""

Provider: TypeAlias = Literal["openai", "anthropic", "gemini"]


class ChatMessage(TypedDict):
    """The keys of a chat-completions message that minutebook reads."""

    role: str
    content: NotRequired[str | list[dict[str, Any]] | None]
    tool_calls: NotRequired[list[dict[str, Any]]]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]


class MessageRole(StrEnum):
    """Role of a message in the conversation."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


SYSTEM_ROLES: Final = frozenset({"system", "developer"})
RESULT_ROLES: Final = frozenset({"tool", "function"})
ROLES: Final = SYSTEM_ROLES | RESULT_ROLES | {"user", "assistant"}

MISSING_ID: Final = ""
"""The id that `call_ids` and `result_id` return for a call or a result without one. Those are paired by their order."""

FUNCTION_ID_PREFIX: Final = "function:"
"""A deprecated `function_call` has no id. This prefix and the function's name are used as the id of call and result."""

CALL_BLOCKS: Final = frozenset({"tool_use", "tool_result"})
"""Types of the content blocks that are tool calls and results in Anthropic's messages. In chat messages, tool calls and
results are never part of the content."""

_FOLD_KINDS: Final = frozenset({"summary", "marker"})
"""The values of `kind` in messages that a fold shows."""

_CONVERT_FIRST: Final = "convert the messages first: minutebook.wire.read.read(messages)"


def require_message(message: Any, index: int | None = None) -> Message:
    """Return the message if it is a mapping and its `tool_calls`, if any, are a list of mappings.

    Anthropic's call blocks and Responses items are refused: the functions of this module would overlook their calls and
    results.

    Raises:
        InvalidMessage: `message` is not such a mapping. `index` is its index in the caller's list, for the error.
    """
    if type(message) is not dict and not isinstance(message, Mapping):  # the first test is faster and usually enough
        raise InvalidMessage("", f"is of type {type(message).__name__}; expected a mapping with a role", index)
    role = message.get("role")
    if type(role) is not str and role is not None and not isinstance(role, str):
        raise InvalidMessage("role", f"is of type {type(role).__name__}; expected text such as 'user'", index)
    calls = message.get("tool_calls")
    if calls is not None and not (
        isinstance(calls, (list, tuple)) and all(isinstance(call, Mapping) for call in calls)
    ):
        raise InvalidMessage("tool_calls", "is not a list of mappings with the keys id, type and function", index)
    content = message.get("content")
    if type(content) is not str and content is not None:
        _refuse_call_blocks(content, index)
    if "role" not in message and isinstance(message.get("type"), str):
        raise InvalidMessage("type", f"is that of a Responses item; {_CONVERT_FIRST}", index, message["type"])
    return message


def _refuse_call_blocks(content: Any, index: int | None) -> None:
    for part_index, part in enumerate(content if isinstance(content, (list, tuple)) else ()):
        if isinstance(part, Mapping) and type_of(part) in CALL_BLOCKS:
            problem = f"is Anthropic's {part['type']} block; {_CONVERT_FIRST}"
            raise InvalidMessage(f"content[{part_index}]", problem, index)


def type_of(part: Mapping[str, Any]) -> str:
    """The type of a content part, or an empty string if it is missing or not a string."""
    part_type = part.get("type")
    return part_type if isinstance(part_type, str) else ""


def role_of(message: Message) -> str:
    """The role, or an empty string if it is missing or not a string."""
    role = message.get("role")
    return role if isinstance(role, str) else ""


def is_system(message: Message) -> bool:
    return role_of(message) in SYSTEM_ROLES


def is_user(message: Message) -> bool:
    return role_of(message) == "user"


def is_result(message: Message) -> bool:
    return role_of(message) in RESULT_ROLES


def has_fold_kind(message: Message) -> bool:
    """Whether the message is a summary or a marker, which a fold shows in place of messages of the record."""
    return "kind" in message and message["kind"] in _FOLD_KINDS


def call_ids(message: Message) -> list[str]:
    """The ids of the message's tool calls, in order; `MISSING_ID` for a call without one.

    The id of a deprecated `function_call` is `FUNCTION_ID_PREFIX` and the function's name.
    """
    calls = message.get("tool_calls")
    if calls:
        return [_id_or_missing(call.get("id")) for call in calls]
    function_call = message.get("function_call")
    if isinstance(function_call, Mapping):
        return [f"{FUNCTION_ID_PREFIX}{function_call.get('name')}"]
    return []


def result_id(message: Message) -> str:
    """The id of the call that a result answers, or `MISSING_ID`."""
    if message.get("role") == "function":
        return f"{FUNCTION_ID_PREFIX}{message.get('name')}"
    return _id_or_missing(message.get("tool_call_id"))


def call_names(message: Message) -> list[str]:
    """The tool names of the message's calls, in the order of `call_ids`; an empty string for a call without a name."""
    calls = message.get("tool_calls")
    if calls:
        return [_tool_name(call) for call in calls]
    function_call = message.get("function_call")
    return [str(function_call.get("name") or "")] if isinstance(function_call, Mapping) else []


def call_arguments(message: Message) -> list[Any]:
    """The arguments of the message's calls as they are, in the order of `call_ids`. Those of a custom tool are its input."""
    calls = message.get("tool_calls")
    if calls:
        return [_call_arguments(call) for call in calls]
    function_call = message.get("function_call")
    return [function_call.get("arguments")] if isinstance(function_call, Mapping) else []


def text_of(message: Message) -> str:
    """The text of the message's content. The texts of parts are joined by newlines; parts without text are ignored."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        texts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def _id_or_missing(value: object) -> str:
    return value if isinstance(value, str) else MISSING_ID


def _tool_name(call: Mapping[str, Any]) -> str:
    function = call.get("function") or call.get("custom")
    return str(function.get("name") or "") if isinstance(function, Mapping) else ""


def _call_arguments(call: Mapping[str, Any]) -> Any:
    function = call.get("function") or call.get("custom")
    return function.get("arguments", function.get("input")) if isinstance(function, Mapping) else None


def leading_system_count(messages: Sequence[Message]) -> int:
    """The number of system messages at the start."""
    return next((index for index, message in enumerate(messages) if not is_system(message)), len(messages))
