"""The values that every format reads and writes, conversations with messages in chat form, and helpers to read them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, Literal

from minutebook.formats.source import Kind, Source, Value
from minutebook.formats.value_errors import skip_malformed
from minutebook.record.fold import Fold
from minutebook.record.message import Message, Provider
from minutebook.wire.read import read_numbered


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """One message of a file, and what the file says about it."""

    message: Message
    place: str = ""
    """Where it is in the file, for example "line 12"."""
    at: datetime | None = None
    model: str | None = None
    usage: Mapping[str, Any] | None = None
    """The usage that the provider reported for the call that this message answered."""
    original: Any = None
    """The JSON value that this message alone was read from, if the writer needs it to keep what a chat message does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConversation:
    """One conversation of a file."""

    items: list[SourceMessage]
    place: str = ""
    """The place of the value that it was read from, for example "line 12". Empty if it is the whole file."""
    id: str | None = None
    is_id_derived: bool = False
    """The file has no id of the conversation: `id` is made from the file's name or the place."""
    title: str | None = None
    model: str | None = None
    created_at: datetime | None = None
    branch_of: str | None = None
    """The id of the conversation that this one is a branch of. Both begin with the same messages."""
    is_continuation: bool = False
    """The provider has the messages before its own, so results may answer calls that are not in the file."""
    former_ids: tuple[str, ...] = ()
    """The ids that the reader may have given the conversation when the file had fewer messages or another current branch."""
    folds: tuple[Fold, ...] = ()
    """The compactions that the program had made: what it sent instead of earlier messages."""
    format: str = ""
    """The name of the file's format."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The fields around the messages, as they are in the file. Writing the same format restores them."""
    original: Any = None
    """The JSON value that the conversation was read from, if it is one value. It is written back if nothing was changed."""

    @property
    def messages(self) -> list[Message]:
        return [item.message for item in self.items]


Reader = Callable[[Source], Iterator[SourceConversation]]
Writer = Callable[[SourceConversation], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A file format. Register your own with an entry point of the group `minutebook.formats`."""

    name: str
    title: str
    """One line for the list of formats."""
    matches: Callable[[Any], bool]
    """Whether a value can be a part of such a file: one JSON value, the text's beginning, or the tables of a database."""
    read: Reader
    also_matches: Callable[[Any, Any], bool] | None = None
    """Whether a value can be a part of such a file if `matches` is true for another value of the file.

    The second argument is the first value of the file."""
    kind: Kind = "json"
    provider: Provider = "openai"
    """The provider whose rules the messages must follow."""
    has_api_messages: bool = False
    """Whether the file has messages of the provider's API. They are read unchanged, even if calls have no ids."""
    write: Writer | None = None
    """The JSON value of a conversation; None if no program reads such a file back."""
    list_name: str = "messages"
    """The key of the list of messages in the value that `write` returns."""
    evidence: frozenset[str] = frozenset()
    """Keys and roles in requests, messages and tools that only this provider's API has. They decide if several formats match.

    Empty if the format's values have a shape of their own. A role is written "role tool"."""


def read_each(
    source: Source,
    matches: Callable[[Any], bool],
    conversation: Callable[[Any, str], SourceConversation | Iterable[SourceConversation]],
) -> Iterator[SourceConversation]:
    """Read a file with a conversation in each of its values. Values that are not understood are skipped with a reason."""
    for value in source.values():
        if not matches(value.data):
            source.skip(value.place, f"is {describe(value.data)}, not a conversation of this format")
            continue
        conversations: list[SourceConversation] = []
        with skip_malformed(source, value.place):
            result = conversation(value.data, value.place)
            if isinstance(result, SourceConversation):
                conversations = [replace(result, place=value.place, original=value.data)]
            else:
                conversations = [replace(branch, place=value.place) for branch in result]
        yield from conversations


def holds_messages(source: Source, is_message: Callable[[Any], bool], matches: Callable[[Any], bool]) -> bool:
    """Whether the values of a file are messages of one conversation; otherwise each is a conversation.

    Foreign values do not count. In a file of conversations, a single message belongs to none of them.
    """
    are_messages = [is_message(value) for value in source.sample() if is_message(value) or matches(value)]
    difference = 2 * sum(are_messages) - len(are_messages)
    return difference > 0 or (difference == 0 and are_messages[:1] == [True])


def read_items(
    source: Source,
    values: Iterable[Value],
    is_message: Callable[[Any], bool],
    read_message: Callable[[Any, str], Iterable[SourceMessage]],
) -> list[SourceMessage]:
    """Read messages one by one, each with its place. Those that are not understood are skipped with a reason."""
    items: list[SourceMessage] = []
    for value in values:
        if is_message(value.data):
            with skip_malformed(source, value.place):
                items += list(read_message(value.data, value.place))
        else:
            source.skip(value.place, f"is {describe(value.data)}, not a message of this format")
    return items


def items_of(
    messages: Iterable[Any],
    places: Iterable[str],
    *,
    api: Literal["anthropic", "responses"] | None = None,
    **facts: Any,
) -> list[SourceMessage]:
    """Read messages in any provider's format, each with its place. `places` may be longer than `messages`.

    `facts` are other fields of each `SourceMessage`.
    """
    provider_messages = list(messages)
    places_by_index = list(islice(places, len(provider_messages)))
    return [
        SourceMessage(message, places_by_index[index], **facts)
        for index, message in read_numbered(provider_messages, api=api)
    ]


def list_places(place: str, name: str = "messages") -> Iterator[str]:
    """The places of the items of a list: "line 3, messages[0]" and so on."""
    prefix = "" if place == "the document" else f"{place}, "
    index = 0
    while True:
        yield f"{prefix}{name}[{index}]"
        index += 1


def time_of(value: Any) -> datetime | None:
    """A time from ISO 8601 text, or from seconds or milliseconds since 1970. None if it is neither."""
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return None
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e14:
        return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    return None


_JSON_TYPES: Final = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
}


def describe(value: Any) -> str:
    """A JSON value in a few words, for messages to the user."""
    if isinstance(value, Mapping):
        keys = ", ".join(map(repr, list(value)[:6]))
        return f"an object with the keys {keys}" if keys else "an empty object"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)} values"
    return _JSON_TYPES.get(type(value), f"a {type(value).__name__}")


def has_keys(value: Any, *keys: str) -> bool:
    """Whether the value is an object with these keys."""
    return isinstance(value, Mapping) and all(key in value for key in keys)


def text_id(value: Any) -> str | None:
    """An id as text; None if it is missing or not a text or number."""
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "" else None


@dataclass(frozen=True, slots=True)
class Node:
    """A message of a tree."""

    id: str
    parent: str | None
    items: Sequence[SourceMessage]


def branches(
    name: str, nodes: Mapping[str, Node], current: str | None
) -> Iterator[tuple[dict[str, Any], list[SourceMessage]]]:
    """The paths from the root to every leaf, that of `current` first, each with the ids of its conversation.

    The conversation of `current` has the id `name`. The id of a branch ends with the id of its leaf.
    """
    parents = {node.parent for node in nodes.values()}
    leaves = [node_id for node_id in nodes if node_id not in parents]
    current_leaf = current if current in nodes else (leaves[-1] if leaves else None)
    for index, leaf in enumerate(dict.fromkeys([current_leaf, *leaves])):
        path: list[Node] = []
        node = nodes.get(leaf or "")
        while node is not None and len(path) <= len(nodes):
            path.append(node)
            node = nodes.get(node.parent or "")
        if path:
            ids = tuple(f"{name}.{step.id}" for step in path)
            facts = {"id": ids[0] if index else name, "branch_of": name if index else None, "former_ids": ids}
            yield facts, [item for step in reversed(path) for item in step.items]
