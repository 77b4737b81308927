"""Gemini's `generateContent`: the rules for requests, and responses. Streams are not served.

Neighbouring contents of one role are one turn. A model turn with function calls is followed by a user turn with exactly one
response to each, and a turn of responses follows a turn of calls. Like the rules for Anthropic, these do not use
`minutebook.check`.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from minutebook.testing.provider.usage import AnswerUsage
from minutebook.testing.script import CallPart, ScriptedAnswer, ScriptedFailure, TextPart

PATH: Final = "/v1beta/models/"
METHOD: Final = ":generateContent"

ROLES: Final = frozenset({"user", "model", "function"})
PART_FIELDS: Final = frozenset(
    {
        *("text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode"),
        *("codeExecutionResult", "toolCall", "toolResponse"),
    }
)
"""A part has exactly one of these."""


def model_of(path: str) -> str | None:
    """The model in the path of a `generateContent` request; None for other paths."""
    is_own = path.startswith(PATH) and path.endswith(METHOD)
    return path.removeprefix(PATH).removesuffix(METHOD) if is_own else None


def generated_content(answer: ScriptedAnswer, usage: AnswerUsage, model: str, number: int) -> dict[str, Any]:
    """The response to a request."""
    parts: list[dict[str, Any]] = []
    for part in answer.parts:
        if isinstance(part, CallPart):
            parts.append({"functionCall": {"id": part.call_id, "name": part.tool, "args": part.input}})
        elif isinstance(part, TextPart):
            parts.append({"text": part.text})
        else:
            parts.append({"text": part.text, "thought": True})
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    counts = {
        "promptTokenCount": usage.prompt,
        "cachedContentTokenCount": usage.cached,
        "candidatesTokenCount": usage.completion,
        "totalTokenCount": usage.prompt + usage.completion,
    }
    return {
        "candidates": [candidate],
        "usageMetadata": counts,
        "modelVersion": model,
        "responseId": f"resp_{number}",
    }


def gemini_problem(body: Mapping[str, Any]) -> ScriptedFailure | None:
    """The first problem for which Gemini would return status 400."""
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        return ScriptedFailure(400, "* GenerateContentRequest.contents: contents is not specified")
    problem = _contents_problem(contents) or _turns_problem(contents)
    return ScriptedFailure(400, problem) if problem else None


def _contents_problem(contents: Sequence[Any]) -> str | None:
    for index, content in enumerate(contents):
        path = f"contents[{index}]"
        if not isinstance(content, Mapping) or content.get("role", "user") not in ROLES:
            return f"{path}.role: Please use a valid role: user, model."
        parts = content.get("parts")
        if not isinstance(parts, list) or not parts:
            return f"* GenerateContentRequest.{path}.parts: must not be empty."
        for number, part in enumerate(parts):
            if not isinstance(part, Mapping) or len(part.keys() & PART_FIELDS) != 1:
                return f"{path}.parts[{number}].data: required oneof field 'data' must have one initialized field"
            call = part.get("functionCall", part.get("functionResponse"))
            if call is not None and not (isinstance(call, Mapping) and call.get("name")):
                return f"* GenerateContentRequest.{path}.parts[{number}].name: Name cannot be empty."
    return None


def _turns_problem(contents: Sequence[Mapping[str, Any]]) -> str | None:
    turns = [
        (role, [part for content in group for part in content["parts"]])
        for role, group in groupby(contents, lambda content: "model" if content.get("role") == "model" else "user")
    ]
    if turns[0][0] == "model":
        return "Please ensure that the first turn is of the user."
    open_calls: list[Mapping[str, Any]] = []
    for role, parts in turns:
        responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        if (calls and role == "user") or (responses and role == "model"):
            return "Please ensure that function calls are of the model and function responses of the user."
        if responses and not open_calls:
            return "Please ensure that function response turn comes immediately after a function call turn."
        if len(responses) != len(open_calls):
            return (
                "Please ensure that the number of function response parts is equal to the number of function call parts of "
                "the function call turn."
            )
        if sorted(map(_key, responses)) != sorted(map(_key, open_calls)):
            return "Please ensure that each function response has the name and the id of a function call."
        if responses and "functionResponse" not in parts[0]:
            return "Please ensure that function response turn comes immediately after a function call turn."
        open_calls = calls
    return "Please ensure that each function call has a response." if open_calls else None


def _key(part: Mapping[str, Any]) -> tuple[str, str]:
    return str(part["name"]), str(part.get("id") or "")
