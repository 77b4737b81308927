"""An assistant message put together from the pieces of a stream of chat completions."""

from collections.abc import Mapping
from typing import Any, Final

_TEXTS: Final = ("content", "refusal", "reasoning_content", "reasoning")


class Assembly:
    """Collects deltas until they are a message."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, delta: Mapping[str, Any]) -> None:
        for key in _TEXTS:
            if isinstance(delta.get(key), str):
                self._texts.setdefault(key, []).append(delta[key])
        for place, piece in enumerate(delta.get("tool_calls") or ()):
            self._add_call(piece, place)

    @property
    def is_empty(self) -> bool:
        return not self._calls and not any(any(pieces) for pieces in self._texts.values())

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts.get("content", ())) or None}
        message |= {key: text for key in _TEXTS[1:] if (text := "".join(self._texts.get(key, ())))}
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        elif message["content"] is None:
            message["content"] = ""
        return message

    def _add_call(self, piece: Mapping[str, Any], place: int) -> None:
        index = piece.get("index")
        call = self._calls.setdefault(
            place if index is None else index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call["id"] = piece.get("id") or call["id"]
        function = piece.get("function") or {}
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""
