"""What Anthropic asks of thinking beyond its signature: it comes back with its calls, and after the prompt it came after."""

from collections.abc import Mapping, Sequence
from typing import Any

from minutebook.testing.provider_blocks import blocks_of
from minutebook.testing.provider_meter import canonical
from minutebook.testing.provider_seal import prompt_of
from minutebook.testing.script import Answer, Failure, Thinking, Use


class Thoughts:
    """Remembers which calls were thought about."""

    def __init__(self, *, bound_to_prompt: bool) -> None:
        self._bound = bound_to_prompt
        self._calls: set[str] = set()

    def remember(self, answer: Answer) -> None:
        if any(isinstance(part, Thinking) for part in answer.parts):
            self._calls.update(
                _key(part.call_id, part.tool, part.input) for part in answer.parts if isinstance(part, Use)
            )

    def problem(self, body: Mapping[str, Any], digests: Sequence[str]) -> Failure | None:
        said = self._left_out(body) or (self._moved(body, digests) if self._bound else None)
        return Failure(400, said) if said else None

    def _left_out(self, body: Mapping[str, Any]) -> str | None:
        """While thinking is on, the calls being answered must still have the thinking before them."""
        thinking = body.get("thinking")
        if not isinstance(thinking, Mapping) or thinking.get("type") != "enabled":
            return None
        asked = [index for index, message in enumerate(body["messages"]) if message["role"] == "assistant"]
        blocks = blocks_of(body["messages"][asked[-1]]) if asked else []
        thought = any(_key(b["id"], b["name"], b["input"]) in self._calls for b in blocks if b["type"] == "tool_use")
        if not thought or blocks[0]["type"] in {"thinking", "redacted_thinking"}:
            return None
        return (
            f"messages.{asked[-1]}.content.0.type: expected `thinking` or `redacted_thinking`, but found "
            f"`{blocks[0]['type']}`; with thinking enabled, a final assistant message with calls must start with it"
        )

    @staticmethod
    def _moved(body: Mapping[str, Any], digests: Sequence[str]) -> str | None:
        """With preserved thinking, what stands before a thought may not change after it was thought."""
        for index, message in enumerate(body["messages"]):
            for place, block in enumerate(blocks_of(message)):
                # Tools and system prompt have the first two digests, so this is the one before the message.
                if block["type"] == "thinking" and prompt_of(block["signature"]) != digests[index + 1]:
                    return f"messages.{index}.content.{place}: `thinking` whose preceding prompt has changed; remove it"
        return None


def _key(call_id: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """A call by all it says, since two scripts may give the same id."""
    return canonical([call_id, tool, arguments])
