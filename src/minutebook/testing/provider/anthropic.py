"""Anthropic's Messages: the rules for requests, and answers whole and streamed.

The content of one Anthropic message: which blocks it may hold, and what each of them needs.

Answers in the shape of Anthropic's messages, whole and as a stream.

Signatures on thinking blocks, which make them tamper-evident.

A signature holds a digest of the text and of the prompt it was thought after, and a digest of both that says it is one
of ours. So any loopback provider recognises what another one signed, as a conversation may outlive the server.

What Anthropic refuses in a messages request.

Written from the provider's documented rules and not from `minutebook.check`, so that the two can disagree.

What Anthropic asks of thinking beyond its signature: it comes back with its calls, and after the prompt it came after.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from minutebook.testing.provider.openai import finish_reason, pieces, words
from minutebook.testing.provider.usage import Tally, canonical
from minutebook.testing.script import Answer, Failure, Part, Text, Thinking, Use

NEEDS: Final[dict[str, dict[str, type]]] = {
    "text": {"text": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "image": {"source": dict},
    "document": {"source": dict},
    "search_result": {"source": str, "title": str, "content": list},
    "container_upload": {"file_id": str},
}
ASSISTANTS: Final = frozenset({"tool_use", "thinking", "redacted_thinking"})
USERS: Final = frozenset({"tool_result", "image", "document", "search_result", "container_upload"})
IN_RESULTS: Final = frozenset({"text", "image", "document", "search_result", "tool_reference"})


def blocks_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The blocks of a message; a plain string is one text block."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def content_problem(message: Mapping[str, Any], path: str) -> str | None:
    content = message.get("content")
    if not isinstance(content, str | list):
        return f"{path}.content: must be a string or a list of blocks"
    if not content:
        return f"{path}: all messages must have non-empty content"
    for place, block in enumerate(blocks_of(message)):
        if problem := _block_problem(block, message["role"], f"{path}.content.{place}"):
            return problem
    return None


def _block_problem(block: Any, role: str, path: str) -> str | None:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if not isinstance(kind, str):
        return f"{path}: must be a block with a type"
    if kind not in NEEDS:
        # Server tools have many blocks of their own, in pairs that only their server makes.
        return None if kind.endswith(("_tool_result", "server_tool_use")) else f"{path}: unknown block type '{kind}'"
    if role == "system" and kind != "text":
        return f"{path}: a system message holds only text blocks, not `{kind}`"
    if kind in (ASSISTANTS if role == "user" else USERS):
        return f"{path}: `{kind}` blocks cannot be in {role} messages"
    for key, wanted in NEEDS[kind].items():
        if not isinstance(block.get(key), wanted):
            return f"{path}.{kind}.{key}: field required, a {wanted.__name__}"
    if kind == "text" and not block["text"].strip():
        return "messages: text content blocks must be non-empty and contain non-whitespace text"
    return _result_problem(block, path) if kind == "tool_result" else None


def _result_problem(block: Mapping[str, Any], path: str) -> str | None:
    content = block.get("content", "")
    if isinstance(content, str):
        return None
    if not isinstance(content, list):
        return f"{path}.tool_result.content: must be a string or a list of blocks"
    for place, inner in enumerate(content):
        if not isinstance(inner, Mapping) or inner.get("type") not in IN_RESULTS:
            return f"{path}.tool_result.content.{place}: must be one of {', '.join(sorted(IN_RESULTS))}"
    return None


STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

Sign = Callable[[str], str]
"""The signature of a thinking block."""


def message(answer: Answer, tally: Tally, request: Mapping[str, Any], number: int, sign: Sign) -> dict[str, Any]:
    """A `message`."""
    return {
        **_head(request, number),
        "content": [block(part, sign) for part in answer.parts],
        **_ending(answer),
        "usage": _usage(tally, tally.completion),
    }


def block(part: Part, sign: Sign) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Thinking):
        return {"type": "thinking", "thinking": part.text, "signature": sign(part.text)}
    return {"type": "tool_use", "id": part.call_id, "name": part.tool, "input": part.input}


def events(answer: Answer, tally: Tally, request: Mapping[str, Any], number: int, sign: Sign) -> Iterator[str]:
    """The events of a stream, without the ending where the answer breaks off."""
    begun = {**_head(request, number), "content": [], "stop_reason": None, "stop_sequence": None}
    yield event("message_start", message={**begun, "usage": _usage(tally, 1)})
    yield event("ping")
    for index, part in enumerate(answer.parts):
        yield event("content_block_start", index=index, content_block=_opening(part))
        for delta in _deltas(part, sign):
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    if answer.failure is None:
        usage = {"output_tokens": tally.completion}
        yield event("message_delta", delta=_ending(answer), usage=usage)
        yield event("message_stop")


def event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n"


def _opening(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": ""}
    if isinstance(part, Thinking):
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "tool_use", "id": part.call_id, "name": part.tool, "input": {}}


def _deltas(part: Part, sign: Sign) -> Iterator[dict[str, Any]]:
    if isinstance(part, Text):
        yield from ({"type": "text_delta", "text": word} for word in words(part.text))
    elif isinstance(part, Thinking):
        yield from ({"type": "thinking_delta", "thinking": word} for word in words(part.text))
        yield {"type": "signature_delta", "signature": sign(part.text)}
    else:
        yield {"type": "input_json_delta", "partial_json": ""}
        yield from ({"type": "input_json_delta", "partial_json": piece} for piece in pieces(part.arguments))


def _ending(answer: Answer) -> dict[str, Any]:
    if answer.refusal is not None:
        # Anthropic writes no words of refusal into the content; the reason is all there is.
        details = {"type": "refusal", "category": None, "explanation": answer.refusal}
        return {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
    return {"stop_reason": STOP_REASONS[finish_reason(answer)], "stop_sequence": None}


def _head(request: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": request["model"]}


def _usage(tally: Tally, output: int) -> dict[str, Any]:
    return {
        "input_tokens": tally.prompt - tally.cached - tally.written,
        "cache_read_input_tokens": tally.cached,
        "cache_creation_input_tokens": tally.written,
        "output_tokens": output,
    }


MAKER = "minutebook loopback provider"


def sign(text: str, prompt: str) -> str:
    """The signature of a thought that came after the prompt with this digest."""
    parts = (_digest(text), prompt, _digest(f"{MAKER} {_digest(text)} {prompt}"))
    return base64.b64encode(".".join(parts).encode()).decode()


def is_untouched(text: str, signature: str) -> bool:
    """Whether we signed exactly this text."""
    parts = _opened(signature)
    if parts is None:
        return False
    said, prompt, seal = parts
    return said == _digest(text) and seal == _digest(f"{MAKER} {said} {prompt}")


def prompt_of(signature: str) -> str:
    """The digest of the prompt that the thought came after."""
    parts = _opened(signature)
    return parts[1] if parts else ""


def _opened(signature: str) -> list[str] | None:
    try:
        parts = base64.b64decode(signature, validate=True).decode().split(".")
    except ValueError:
        return None
    return parts if len(parts) == 3 else None


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


ROLES: Final = ("user", "assistant", "system")
CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


def messages_problem(body: Mapping[str, Any], *, max_tokens_needed: bool = True) -> Failure | None:
    """The first thing that Anthropic would answer 400 to."""
    said = _request_problem(body, max_tokens_needed=max_tokens_needed)
    if said is None:
        messages = body["messages"]
        said = (
            _row_problem(messages)
            or _pairing_problem(messages)
            or _thinking_problem(messages)
            or _end_problem(messages)
        )
    return Failure(400, said) if said else None


def _request_problem(body: Mapping[str, Any], *, max_tokens_needed: bool) -> str | None:
    if not isinstance(body.get("model"), str):
        return "model: field required"
    if max_tokens_needed and not (isinstance(body.get("max_tokens"), int) and body["max_tokens"] >= 0):
        return "max_tokens: field required, a number that is not negative"
    messages = body.get("messages")
    if not isinstance(messages, list):
        return "messages: field required, a list"
    if not messages:
        return "messages: at least one message is required"
    names = [tool.get("name") for tool in body.get("tools") or () if isinstance(tool, Mapping)]
    if len(set(names)) < len(names):
        return "tools: tool names must be unique"
    return None


def _row_problem(messages: list[Any]) -> str | None:
    """Each message by itself, and the roles of its neighbours."""
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            return f"messages.{index}: must be an object"
        role = message.get("role")
        if role not in ROLES:
            return f"messages.{index}.role: must be one of {', '.join(ROLES)}, not {role!r}"
        if role == "system" and index == 0:
            return "messages.0: use the top-level 'system' parameter for the system prompt"
        if role == "system" and messages[index - 1]["role"] == "assistant":
            return f"messages.{index}: a system message must follow a user message"
        if problem := content_problem(message, f"messages.{index}"):
            return problem
    return None if messages[0]["role"] == "user" else 'messages: first message must use the "user" role'


def _pairing_problem(messages: list[Mapping[str, Any]]) -> str | None:
    """Every call has its result in the very next message, at its front, and nothing else has one."""
    used: set[str] = set()
    waiting: list[str] = []
    for index, message in enumerate(messages):
        blocks = blocks_of(message)
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if missing := [call_id for call_id in waiting if call_id not in results]:
            return _unanswered(index - 1, missing)
        for place, block in enumerate(blocks):
            where = f"messages.{index}.content.{place}"
            if block["type"] == "tool_result":
                if block["tool_use_id"] not in waiting:
                    return f"{where}: unexpected `tool_use_id` in a `tool_result` block: {block['tool_use_id']}. The message before has no such `tool_use`"
                if results.count(block["tool_use_id"]) > 1:
                    return f"{where}: more than one `tool_result` for {block['tool_use_id']}"
                if any(before["type"] != "tool_result" for before in blocks[:place]):
                    return f"{where}: `tool_result` blocks must come before any other content; see {_unanswered(index - 1, waiting)}"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for call_id in waiting:
            if not CALL_ID.fullmatch(call_id):
                return f"messages.{index}: a `tool_use` id may hold letters, digits, _ and - only: {call_id!r}"
            if call_id in used:
                return f"messages.{index}: `tool_use` ids must be unique: {call_id}"
            used.add(call_id)
    return _unanswered(len(messages) - 1, waiting) if waiting else None


def _unanswered(index: int, ids: list[str]) -> str:
    return f"messages.{index}: `tool_use` without `tool_result` blocks immediately after: {', '.join(ids)}"


def _thinking_problem(messages: list[Mapping[str, Any]]) -> str | None:
    for index, message in enumerate(messages):
        blocks = blocks_of(message)
        for place, block in enumerate(blocks):
            if block["type"] == "thinking" and not is_untouched(block["thinking"], block["signature"]):
                return f"messages.{index}.content.{place}: invalid `signature` in `thinking` block; it must come back unchanged"
        if blocks and blocks[-1]["type"] == "thinking":
            return f"messages.{index}: the final block of an assistant message cannot be `thinking`"
    return None


def _end_problem(messages: list[Mapping[str, Any]]) -> str | None:
    if messages[-1]["role"] == "assistant":
        return "this model does not support assistant message prefill; the conversation must end with a user message"
    return None


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
