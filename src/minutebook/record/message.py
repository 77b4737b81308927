"""What a message is: a mapping in the OpenAI chat-completions shape.

A plain `dict` always works. These few functions are the only places that know how a message spells its role,
its calls and the call it answers, so everything above speaks of calls and results and not of keys.

Messages that cannot be changed in place.

They are dicts and lists, so everything that reads one works, `json.dumps` and `{**message}` included; what would write
raises. The record is handed to code that is not ours only in this form.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, NoReturn, NotRequired, TypeAlias, TypedDict, TypeVar

from minutebook.errors import InvalidMessage, RecordIsReadOnly

K = TypeVar("K")
V = TypeVar("V")
ATOMS: Final = frozenset({str, int, float, bool, type(None)})
"""What nearly all of JSON data is in the end, known by its type alone: asking whether it is a mapping takes far longer."""


def _refuse(name: str) -> Any:
    def refuse(_self: object, *_args: object, **_kwargs: object) -> NoReturn:
        raise RecordIsReadOnly(name.strip("_"))

    refuse.__name__ = name
    return refuse


class FrozenDict(dict[K, V]):
    """A dict that only reads."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse("assignment")
    clear, pop, popitem, setdefault, update = map(_refuse, ("clear", "pop", "popitem", "setdefault", "update"))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[V]):
    """A list that only reads."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse("assignment")
    append, clear, extend, insert = map(_refuse, ("append", "clear", "extend", "insert"))
    pop, remove, reverse, sort = map(_refuse, ("pop", "remove", "reverse", "sort"))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


def frozen(value: Any) -> Any:
    """A copy of JSON data that cannot be changed in place."""
    if type(value) in ATOMS:
        return value
    if isinstance(value, Mapping):
        return FrozenDict((key, frozen(inner)) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return FrozenList(frozen(inner) for inner in value)
    return value


def thawed(value: Any) -> Any:
    """A copy of JSON data in plain dicts and lists."""
    if type(value) in ATOMS:
        return value
    if isinstance(value, Mapping):
        return {key: thawed(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [thawed(inner) for inner in value]
    return value


Message: TypeAlias = Mapping[str, Any]
"""One provider message. `ChatMessage` spells out the keys we read; every other key is kept as it is."""

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

NO_ID: Final = ""
"""The id of a call or result that has none, so that the two can still find each other by their order."""

BY_NAME: Final = "function:"
"""What stands before the name that pairs the older `function_call` with its result, in place of an id."""


def require_message(message: Any, index: int | None = None) -> Message:
    """The message, if it has the shape of one: a mapping, whose calls are a list of mappings.

    Raises:
        InvalidMessage: it has not, and so nothing can be said about it.
    """
    if type(message) is not dict and not isinstance(message, Mapping):  # the first is quick, and nearly always enough
        raise InvalidMessage("it", f"is a {type(message).__name__}; a message is a mapping with a role", index)
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, (list, tuple)) and all(isinstance(c, Mapping) for c in calls)):
        raise InvalidMessage("tool_calls", "is not a list of mappings; each call is {id, type, function}", index)
    return message


def role_of(message: Message) -> str:
    """The role, or an empty string where there is none."""
    role = message.get("role")
    return role if isinstance(role, str) else ""


def is_system(message: Message) -> bool:
    return role_of(message) in SYSTEM_ROLES


def is_user(message: Message) -> bool:
    return role_of(message) == "user"


def is_result(message: Message) -> bool:
    return role_of(message) in RESULT_ROLES


def call_ids(message: Message) -> list[str]:
    """The ids of the calls an assistant message makes, in order; `NO_ID` for a call without one.

    The older `function_call` has no id and is paired by the function's name.
    """
    calls = message.get("tool_calls")
    if calls:
        return [_id(call.get("id")) for call in calls]
    old = message.get("function_call")
    if isinstance(old, Mapping):
        return [f"{BY_NAME}{old.get('name')}"]
    return []


def result_id(message: Message) -> str:
    """The id of the call that a result answers, or `NO_ID`."""
    if message.get("role") == "function":
        return f"{BY_NAME}{message.get('name')}"
    return _id(message.get("tool_call_id"))


def call_names(message: Message) -> list[str]:
    """The tool names of an assistant message's calls, in the order of `call_ids`."""
    calls = message.get("tool_calls")
    if calls:
        return [_name(call) for call in calls]
    old = message.get("function_call")
    return [str(old.get("name") or "")] if isinstance(old, Mapping) else []


def text_of(message: Message) -> str:
    """The text of a message's content, its text parts joined; media and calls are not text."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        texts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def _id(value: object) -> str:
    return value if isinstance(value, str) else NO_ID


def _name(call: Mapping[str, Any]) -> str:
    function = call.get("function") or call.get("custom")
    return str(function.get("name") or "") if isinstance(function, Mapping) else ""


def lead_of(messages: Sequence[Message]) -> int:
    """How many system messages stand at the front."""
    return next((place for place, message in enumerate(messages) if not is_system(message)), len(messages))
