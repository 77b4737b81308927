"""Imitates Anthropic's Messages API for tests: checks requests, and builds responses, streamed or not.

The rules are written from Anthropic's documentation and do not use `minutebook.check`, so that tests can compare the two.

The signature of a thinking block has a digest of its text, a digest of the prompt before it, and a digest of both. A
test server also accepts the signatures of other test servers, because a test may continue a conversation on a new server.
"""

import base64
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from minutebook.testing.provider.openai import finish_reason, pieces, words
from minutebook.testing.provider.usage import AnswerUsage, canonical
from minutebook.testing.script import CallPart, Part, ScriptedAnswer, ScriptedFailure, TextPart, ThinkingPart

REQUIRED_FIELDS: Final[dict[str, dict[str, type]]] = {
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
OPTIONAL_FIELDS: Final[dict[str, frozenset[str]]] = {
    "text": frozenset({"citations"}),
    "tool_use": frozenset({"caller"}),
    "tool_result": frozenset({"content", "is_error"}),
    "document": frozenset({"title", "context", "citations"}),
    "search_result": frozenset({"citations"}),
}
"""Beyond the required fields, `type` and `cache_control`."""
ASSISTANT_BLOCKS: Final = frozenset({"tool_use", "thinking", "redacted_thinking"})
USER_BLOCKS: Final = frozenset({"tool_result", "image", "document", "search_result", "container_upload"})
SOURCE_FIELDS: Final[dict[str, dict[str, frozenset[str]]]] = {
    "image": {
        "base64": frozenset({"media_type", "data"}),
        "url": frozenset({"url"}),
        "file": frozenset({"file_id"}),
    },
    "document": {
        "base64": frozenset({"media_type", "data"}),
        "url": frozenset({"url"}),
        "file": frozenset({"file_id"}),
        "text": frozenset({"media_type", "data"}),
        "content": frozenset({"content"}),
    },
}
MEDIA_TYPES: Final = {
    "image": frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"}),
    "document": frozenset({"application/pdf"}),
}
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
RESULT_BLOCKS: Final = frozenset({"text", "image", "document", "search_result", "tool_reference"})


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
    for index, block in enumerate(blocks_of(message)):
        if problem := _block_problem(block, message["role"], f"{path}.content.{index}"):
            return problem
    return None


def _block_problem(block: Any, role: str, path: str) -> str | None:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if not isinstance(kind, str):
        return f"{path}: must be a block with a type"
    if kind not in REQUIRED_FIELDS:
        # Blocks of server tools are not checked.
        return None if kind.endswith(("_tool_result", "server_tool_use")) else f"{path}: unknown block type '{kind}'"
    if role == "system" and kind != "text":
        return f"{path}: a system message holds only text blocks, not `{kind}`"
    if kind in (ASSISTANT_BLOCKS if role == "user" else USER_BLOCKS):
        return f"{path}: `{kind}` blocks cannot be in {role} messages"
    for key, expected_type in REQUIRED_FIELDS[kind].items():
        if not isinstance(block.get(key), expected_type):
            return f"{path}.{kind}.{key}: field required, a {expected_type.__name__}"
    known_keys = {"type", "cache_control", *REQUIRED_FIELDS[kind], *OPTIONAL_FIELDS.get(kind, ())}
    if problem := _extra_key(block, known_keys, f"{path}.{kind}"):
        return problem
    if kind == "text" and not block["text"].strip():
        return "messages: text content blocks must be non-empty and contain non-whitespace text"
    if kind == "tool_use" and not TOOL_NAME.fullmatch(block["name"]):
        return f"{path}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
    if kind in SOURCE_FIELDS and (problem := _source_problem(block["source"], SOURCE_FIELDS[kind], f"{path}.{kind}")):
        return problem
    return _result_problem(block, path) if kind == "tool_result" else None


def _source_problem(source: Mapping[str, Any], known: Mapping[str, frozenset[str]], path: str) -> str | None:
    kind = str(source.get("type"))
    if kind not in known:
        return f"{path}.source.type: must be one of {', '.join(known)}, not '{kind}'"
    for key in known[kind]:
        if key not in source:
            return f"{path}.source.{kind}.{key}: field required"
    if kind == "base64" and source["media_type"] not in MEDIA_TYPES[path.rpartition(".")[2]]:
        return f"{path}.source.base64.media_type: {source['media_type']!r} is not supported"
    for key in known[kind] - {"content"}:
        if not isinstance(source[key], str) or not source[key]:
            return f"{path}.source.{kind}.{key}: must be a string that is not empty"
    if kind == "url" and not source["url"].startswith(("https://", "http://")):
        return f"{path}.source.url.url: Only HTTP and HTTPS URLs are supported"
    return _extra_key(source, {"type", *known[kind]}, f"{path}.source.{kind}")


def _extra_key(value: Mapping[str, Any], known_keys: Collection[str], path: str) -> str | None:
    return next((f"{path}.{key}: Extra inputs are not permitted" for key in value if key not in known_keys), None)


def _result_problem(block: Mapping[str, Any], path: str) -> str | None:
    content = block.get("content", "")
    if isinstance(content, str):
        return None
    if not isinstance(content, list):
        return f"{path}.tool_result.content: must be a string or a list of blocks"
    for index, inner in enumerate(content):
        if not isinstance(inner, Mapping) or inner.get("type") not in RESULT_BLOCKS:
            return f"{path}.tool_result.content.{index}: must be one of {', '.join(sorted(RESULT_BLOCKS))}"
    return None


STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

Sign = Callable[[str], str]
"""Returns the signature of the text of a thinking block."""


def message(
    answer: ScriptedAnswer, usage: AnswerUsage, request: Mapping[str, Any], number: int, sign: Sign
) -> dict[str, Any]:
    return {
        **_head(request, number),
        "content": [block(part, sign) for part in answer.parts],
        **_stop_fields(answer),
        "usage": _usage(usage, usage.completion),
    }


def block(part: Part, sign: Sign) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ThinkingPart):
        return {"type": "thinking", "thinking": part.text, "signature": sign(part.text)}
    return {"type": "tool_use", "id": part.call_id, "name": part.tool, "input": part.input}


def events(
    answer: ScriptedAnswer, usage: AnswerUsage, request: Mapping[str, Any], number: int, sign: Sign
) -> Iterator[str]:
    """The events of a stream. A stream that ends with an error has no `message_stop`."""
    start = {**_head(request, number), "content": [], "stop_reason": None, "stop_sequence": None}
    yield event("message_start", message={**start, "usage": _usage(usage, 1)})
    yield event("ping")
    for index, part in enumerate(answer.parts):
        yield event("content_block_start", index=index, content_block=_empty_block(part))
        for delta in _deltas(part, sign):
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    if answer.failure is None:
        yield event("message_delta", delta=_stop_fields(answer), usage={"output_tokens": usage.completion})
        yield event("message_stop")


def event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n"


def _empty_block(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": ""}
    if isinstance(part, ThinkingPart):
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "tool_use", "id": part.call_id, "name": part.tool, "input": {}}


def _deltas(part: Part, sign: Sign) -> Iterator[dict[str, Any]]:
    if isinstance(part, TextPart):
        yield from ({"type": "text_delta", "text": word} for word in words(part.text))
    elif isinstance(part, ThinkingPart):
        yield from ({"type": "thinking_delta", "thinking": word} for word in words(part.text))
        yield {"type": "signature_delta", "signature": sign(part.text)}
    else:
        yield {"type": "input_json_delta", "partial_json": ""}
        yield from ({"type": "input_json_delta", "partial_json": piece} for piece in pieces(part.arguments))


def _stop_fields(answer: ScriptedAnswer) -> dict[str, Any]:
    if answer.refusal is not None:
        # Anthropic reports a refusal in the stop reason, not in the content.
        details = {"type": "refusal", "category": None, "explanation": answer.refusal}
        return {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
    return {"stop_reason": STOP_REASONS[finish_reason(answer)], "stop_sequence": None}


def _head(request: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": request["model"]}


def _usage(usage: AnswerUsage, output: int) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt - usage.cached - usage.written,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.written,
        "output_tokens": output,
    }


SIGNER = "minutebook loopback provider"


def thinking_signature(text: str, prompt_digest: str) -> str:
    """The signature of a thinking text that follows the prompt with this digest."""
    parts = (_digest(text), prompt_digest, _digest(f"{SIGNER} {_digest(text)} {prompt_digest}"))
    return base64.b64encode(".".join(parts).encode()).decode()


def is_signed(text: str, signature: str) -> bool:
    """Whether the signature belongs to exactly this text."""
    parts = _signature_parts(signature)
    if parts is None:
        return False
    text_digest, prompt_digest, signed = parts
    return text_digest == _digest(text) and signed == _digest(f"{SIGNER} {text_digest} {prompt_digest}")


def signed_prompt_digest(signature: str) -> str:
    """The digest of the prompt before the thinking block."""
    parts = _signature_parts(signature)
    return parts[1] if parts else ""


def _signature_parts(signature: str) -> list[str] | None:
    try:
        parts = base64.b64decode(signature, validate=True).decode().split(".")
    except ValueError:
        return None
    return parts if len(parts) == 3 else None


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


ROLES: Final = ("user", "assistant", "system")
CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


def messages_problem(body: Mapping[str, Any], *, max_tokens_needed: bool = True) -> ScriptedFailure | None:
    """The first problem for which Anthropic would return status 400."""
    problem = _request_problem(body, max_tokens_needed=max_tokens_needed)
    if problem is None:
        messages = body["messages"]
        problem = (
            _message_problem(messages)
            or _pairing_problem(messages)
            or _thinking_problem(messages)
            or _end_problem(messages)
        )
    return ScriptedFailure(400, problem) if problem else None


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


def _message_problem(messages: list[Any]) -> str | None:
    """The first problem of a single message or of the order of roles."""
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
        problem = _extra_key(message, {"role", "content"}, f"messages.{index}")
        if problem := problem or content_problem(message, f"messages.{index}"):
            return problem
    return None if messages[0]["role"] == "user" else 'messages: first message must use the "user" role'


def _pairing_problem(messages: list[Mapping[str, Any]]) -> str | None:
    """The first violation of: every call has one result, at the start of the next message."""
    used: set[str] = set()
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        blocks = blocks_of(message)
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if missing := [call_id for call_id in open_calls if call_id not in results]:
            return _missing_results(index - 1, missing)
        for block_index, block in enumerate(blocks):
            where = f"messages.{index}.content.{block_index}"
            if block["type"] == "tool_result":
                if block["tool_use_id"] not in open_calls:
                    return f"{where}: unexpected `tool_use_id` in a `tool_result` block: {block['tool_use_id']}. The message before has no such `tool_use`"
                if results.count(block["tool_use_id"]) > 1:
                    return f"{where}: more than one `tool_result` for {block['tool_use_id']}"
                if any(before["type"] != "tool_result" for before in blocks[:block_index]):
                    return f"{where}: `tool_result` blocks must come before any other content"
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for call_id in open_calls:
            if not CALL_ID.fullmatch(call_id):
                return f"messages.{index}: a `tool_use` id may hold letters, digits, _ and - only: {call_id!r}"
            if call_id in used:
                return f"messages.{index}: `tool_use` ids must be unique: {call_id}"
            used.add(call_id)
    return _missing_results(len(messages) - 1, open_calls) if open_calls else None


def _missing_results(index: int, ids: list[str]) -> str:
    return f"messages.{index}: `tool_use` without `tool_result` blocks immediately after: {', '.join(ids)}"


def _thinking_problem(messages: list[Mapping[str, Any]]) -> str | None:
    for index, message in enumerate(messages):
        blocks = blocks_of(message)
        for block_index, block in enumerate(blocks):
            if block["type"] == "thinking" and not is_signed(block["thinking"], block["signature"]):
                return f"messages.{index}.content.{block_index}: invalid `signature` in `thinking` block; it must come back unchanged"
        if blocks and blocks[-1]["type"] == "thinking":
            return f"messages.{index}: the final block of an assistant message cannot be `thinking`"
    return None


def _end_problem(messages: list[Mapping[str, Any]]) -> str | None:
    if messages[-1]["role"] == "assistant":
        return "this model does not support assistant message prefill; the conversation must end with a user message"
    return None


class ThinkingHistory:
    """Checks that thinking blocks are sent back with their calls.

    With `preserved_thinking`, also checks that the prompt before each thinking block has not changed since it was sent.
    """

    def __init__(self, *, preserved_thinking: bool) -> None:
        self._preserved_thinking = preserved_thinking
        self._calls: set[str] = set()

    def add(self, answer: ScriptedAnswer) -> None:
        if any(isinstance(part, ThinkingPart) for part in answer.parts):
            self._calls.update(
                _key(part.call_id, part.tool, part.input) for part in answer.parts if isinstance(part, CallPart)
            )

    def problem(self, body: Mapping[str, Any], digests: Sequence[str]) -> ScriptedFailure | None:
        problem = self._missing_thinking(body) or (
            self._changed_prompt(body, digests) if self._preserved_thinking else None
        )
        return ScriptedFailure(400, problem) if problem else None

    def _missing_thinking(self, body: Mapping[str, Any]) -> str | None:
        """With thinking enabled, the last assistant message must still start with its thinking."""
        thinking = body.get("thinking")
        if not isinstance(thinking, Mapping) or thinking.get("type") != "enabled":
            return None
        assistant_indexes = [index for index, message in enumerate(body["messages"]) if message["role"] == "assistant"]
        blocks = blocks_of(body["messages"][assistant_indexes[-1]]) if assistant_indexes else []
        had_thinking = any(
            _key(block["id"], block["name"], block["input"]) in self._calls
            for block in blocks
            if block["type"] == "tool_use"
        )
        if not had_thinking or blocks[0]["type"] in {"thinking", "redacted_thinking"}:
            return None
        return (
            f"messages.{assistant_indexes[-1]}.content.0.type: expected `thinking` or `redacted_thinking`, but found "
            f"`{blocks[0]['type']}`; with thinking enabled, a final assistant message with calls must start with it"
        )

    @staticmethod
    def _changed_prompt(body: Mapping[str, Any], digests: Sequence[str]) -> str | None:
        for index, message in enumerate(body["messages"]):
            for block_index, block in enumerate(blocks_of(message)):
                # Each digest is of a start of the prompt: the tools, then also the system prompt, then also each message.
                # So `index + 1` is the prompt before this message.
                if block["type"] == "thinking" and signed_prompt_digest(block["signature"]) != digests[index + 1]:
                    return f"messages.{index}.content.{block_index}: `thinking` whose preceding prompt has changed; remove it"
        return None


def _key(call_id: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """A call by id, tool and arguments, because two scripts may use the same id."""
    return canonical([call_id, tool, arguments])
