"""Conversations without their texts or tool names, to share. Lengths, tokens, costs and reasons stay."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from minutebook.history.curation import NoteStatus
from minutebook.record.message import Message, role_of
from minutebook.service.inspector.conversation import InspectedConversation, InspectedFold
from minutebook.service.inspector.heads import ROLE_NAMES, calls_of
from minutebook.service.inspector.requests import FateRun, InspectedRequest, ViewBase

KINDS: Final = ("tools", "texts")
"""What can be left out: the names of tools, the texts of messages and calls."""
_KEPT: Final = ("role", "tool_call_id", "kind", "id")
_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})
_PART_TYPES: Final = frozenset(
    {"image_url", "input_image", "image", "file", "input_file", "document", "input_audio", "refusal"}
)
"""Types that the file names. Another one could be any text."""


@dataclass
class Redaction:
    """Replaces texts or tool names, everywhere in the same way."""

    tools: bool
    texts: bool
    _names: dict[str, str] = field(default_factory=dict)

    def tool(self, name: str) -> str:
        """The name of a tool, or its replacement."""
        return self._names.setdefault(name, f"tool {len(self._names) + 1}") if self.tools and name else name

    def text(self, text: str) -> str:
        return f"[{len(text):,} characters]" if self.texts and text else text

    def reason(self, reason: str, status: NoteStatus | None = None) -> str:
        """A reason. That of a fold may quote the conversation; others may name tools."""
        if self.texts and (status is NoteStatus.FOLDED or status is None):
            return self.text(reason)
        for name in sorted(self._names, key=len, reverse=True):
            reason = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", self._names[name], reason)
        return reason

    def message(self, message: Message) -> Message:
        """A message with what may be shown. Fields that are not known are left out."""
        result: dict[str, Any] = {key: message[key] for key in _KEPT if key in message}
        if self.texts and role_of(message) not in ROLE_NAMES:
            result["role"] = "other"
        result["content"] = self._content(message.get("content"))
        for key in ("reasoning_content", "reasoning"):
            if isinstance(message.get(key), str):
                result[key] = self.text(message[key])
        if isinstance(message.get("name"), str):
            result["name"] = self.tool(message["name"])
        calls = calls_of(message)
        if calls:
            sources = message.get("tool_calls") or [message]
            result["tool_calls"] = [
                {"id": source.get("id"), "type": "function", "function": {"name": self.tool(name), "arguments": self._arguments(arguments)}}
                for source, (name, arguments) in zip(sources, calls, strict=False)
            ]  # fmt: skip
        return result

    def _arguments(self, arguments: Any) -> Any:
        return self.text(str(arguments)) if self.texts else arguments

    def _content(self, content: Any) -> Any:
        if isinstance(content, str):
            return self.text(content)
        parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, (list, tuple)) else []
        shown = []
        for part in parts:
            if part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str):
                shown.append({**part, "text": self.text(part["text"])})
            elif part.get("type") == "thinking" and isinstance(part.get("thinking"), str):
                shown.append({"type": "thinking", "thinking": self.text(part["thinking"])})
            else:
                kind = part.get("type")
                name = kind if not self.texts or kind in _PART_TYPES else "part"
                shown.append({"type": "text", "text": f"[{name or 'part'} left out]"})
        return shown or None


def redacted(conversation: InspectedConversation, redaction: Redaction) -> InspectedConversation:
    """A copy of the conversation without the texts and names that the redaction leaves out."""
    messages = [redaction.message(message) for message in conversation.messages]
    bases: dict[int, ViewBase] = {}

    def base_of(base: ViewBase | None) -> ViewBase | None:
        if base is not None and id(base) not in bases:
            bases[id(base)] = _base(base, redaction)
        return None if base is None else bases[id(base)]

    policy, managers = conversation.policy, conversation.managers
    if redaction.tools and managers:  # their settings may name tools, also those that are never called
        policy = " + ".join(text.partition(":")[0] for text in managers)
    requests = [_request(request, base_of, redaction) for request in conversation.requests]
    series = replace(conversation.series, requests=requests, bases=[(bases[id(base)], first) for base, first in conversation.series.bases])  # fmt: skip
    return replace(
        conversation,
        id="conversation",
        title="Redacted conversation" if redaction.texts else conversation.title,
        messages=messages,
        series=series,
        source="",
        policy=policy,
        folds=[_fold(item, redaction) for item in conversation.folds],
        _cached_spans=None,
        plan=None,
        lines=None,
    )


def _base(base: ViewBase, redaction: Redaction) -> ViewBase:
    parts = tuple(
        part if part.message is None else part._replace(message=redaction.message(part.message)) for part in base.parts
    )
    runs: Sequence[FateRun] = [run._replace(reason=redaction.reason(run.reason, run.status)) for run in base.runs]
    return replace(base, parts=parts, runs=tuple(runs))


def _request(
    request: InspectedRequest, base_of: Callable[[ViewBase | None], ViewBase | None], redaction: Redaction
) -> InspectedRequest:
    problem = None if request.problem is None else redaction.reason(request.problem)
    refusal = None if request.refusal is None else redaction.reason(request.refusal, NoteStatus.DROPPED)
    return replace(request, base=base_of(request.base), problem=problem, refusal=refusal)


def _fold(item: InspectedFold, redaction: Redaction) -> InspectedFold:
    shown = tuple(map(redaction.message, item.fold.shown))
    return replace(item, fold=replace(item.fold, shown=shown, reason=redaction.reason(item.fold.reason)))
