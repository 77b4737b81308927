"""The content of one Anthropic message: which blocks it may hold, and what each of them needs."""

from collections.abc import Mapping
from typing import Any, Final

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
