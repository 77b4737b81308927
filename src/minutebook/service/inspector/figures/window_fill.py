"""What fills the window of a request: tokens by role, by tool or by file."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from minutebook.record.message import call_ids, is_result, result_id
from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.service.inspector.heads import calls_of, head_of
from minutebook.service.inspector.requests import InspectedRequest

GROUPINGS: Final = ("role", "tool", "file")
FILE_ARGUMENTS: Final = ("file_path", "path", "filename", "file", "notebook_path", "filepath")
MAX_ITEMS: Final = 60
"""Per group; the smaller ones are added up."""
MAX_GROUPS: Final = 24


class FillItem(NamedTuple):
    """A message that is sent, or several small ones."""

    name: str
    tokens: int
    position: int | None


class FillGroup(NamedTuple):
    """Messages with something in common, by tokens in descending order."""

    name: str
    items: list[FillItem]
    messages: int

    @property
    def tokens(self) -> int:
        return sum(item.tokens for item in self.items)


def window_fill(conversation: InspectedConversation, request: InspectedRequest, grouping: str) -> list[FillGroup]:
    """The groups of a request's messages, by tokens in descending order. `grouping` is one of `GROUPINGS`."""
    found: dict[str, list[FillItem]] = {}
    calls = calls_by_id(conversation, request.length)
    for position, tokens in _sent_messages(conversation, request):
        message = conversation.messages[position]
        head = head_of(message)
        name, arguments = calls.get(result_id(message) or "", ("", None)) if is_result(message) else ("", None)
        if not name and head.calls:
            name, arguments = calls_of(message)[0]
        file = _file_of(arguments)
        if grouping == "role":
            group = head.role
        elif grouping == "tool":
            group = name or head.tool or "no tool"
        else:
            group = file or "no file"
        summary = file or (head.calls[0].summary if head.calls else "") or head.text or head.role
        label = summary if grouping == "tool" or not name else f"{name} {summary}"
        found.setdefault(group, []).append(FillItem(label[:120], tokens, position))
    for part in request.base.parts if request.base else ():
        if part.is_added and part.message is not None and part.tokens:
            items = found.setdefault("only in the request", [])
            items.append(FillItem(head_of(part.message).text[:120] or "added", part.tokens, None))
    groups = sorted((_group(name, items) for name, items in found.items()), key=lambda group: -group.tokens)
    if len(groups) <= MAX_GROUPS:
        return groups
    others = [FillItem(group.name, group.tokens, None) for group in groups[MAX_GROUPS - 1 :]]
    rest = _group(f"{len(others)} others", others)._replace(
        messages=sum(group.messages for group in groups[MAX_GROUPS - 1 :])
    )
    return sorted([*groups[: MAX_GROUPS - 1], rest], key=lambda group: -group.tokens)


def _group(name: str, items: list[FillItem]) -> FillGroup:
    ordered = sorted(items, key=lambda item: -item.tokens)
    shown, small = ordered[:MAX_ITEMS], ordered[MAX_ITEMS:]
    if small:
        shown.append(FillItem(f"{len(small):,} smaller messages", sum(item.tokens for item in small), None))
        shown.sort(key=lambda item: -item.tokens)
    return FillGroup(name, shown, len(items))


def _sent_messages(conversation: InspectedConversation, request: InspectedRequest) -> list[tuple[int, int]]:
    sent = ((position, conversation.sent_tokens(request, position)) for position in range(request.length))
    return [(position, tokens) for position, tokens in sent if tokens]


def calls_by_id(conversation: InspectedConversation, length: int) -> dict[str, tuple[str, Any]]:
    """The id of each call → its name and arguments."""
    return {
        call_id: call
        for message in conversation.messages[:length]
        for call_id, call in zip(call_ids(message), calls_of(message), strict=False)
    }


def _file_of(arguments: Any) -> str:
    if not isinstance(arguments, Mapping):
        return ""
    return next((arguments[key] for key in FILE_ARGUMENTS if isinstance(arguments.get(key), str)), "")
