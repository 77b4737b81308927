"""google-adk's contents as chat-completions messages, and back.

A message says what everybody understands: text, calls, results, media. What of a content's parts it cannot say (a thought
signature, code that was run, a scheduled response) travels with it under `adk`, so the way back gives the same parts;
where the message was changed since, by a fold that clears a result, what it says now wins.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from minutebook.errors import MissingExtra
from minutebook.record.message import Message, is_result, plain_copy, text_of

try:
    from google.genai import types
except ImportError as error:
    raise MissingExtra("google-adk", "adk") from error

KEY: Final = "adk"
"""What a message keeps for google-adk; no provider is ever sent it."""


def messages_of(content: types.Content, **about: Any) -> list[dict[str, Any]]:
    """What a content says: a message for each result in it, and one for the rest. `about` is noted on each of them."""
    parts = content.parts or []
    results = [part for part in parts if part.function_response is not None]
    rest = [part for part in parts if part.function_response is None]
    made = [
        _noted(_result(part.function_response), "user", [part], about) for part in results if part.function_response
    ]
    if rest:
        role = "model" if content.role == "model" else "user"
        made.append(_noted(_message(role, rest), role, rest, about))
    return made


def contents_of(messages: Iterable[Message]) -> list[types.Content]:
    """The contents that say these messages; results that stand together are one content, as google-adk has them."""
    made: list[types.Content] = []
    together = False
    for message in messages:
        role, parts = _role(message), _parts_of(message)
        if together and is_result(message):
            made[-1] = types.Content(role=role, parts=[*(made[-1].parts or []), *parts])
        else:
            made.append(types.Content(role=role, parts=parts))
        together = is_result(message)
    return made


def signature_of(messages: Iterable[Message]) -> str:
    """What messages say, without the ids that google-adk takes away before it sends them."""
    return json.dumps([_without_ids(plain_copy(message)) for message in messages], sort_keys=True)


def _noted(message: dict[str, Any], role: str, parts: Sequence[types.Part], about: Mapping[str, Any]) -> dict[str, Any]:
    note = dict(about)
    if _plain_parts(message) != list(parts):
        note["parts"] = [_dumped(part) for part in parts]
        note["role"] = role
    return {**message, KEY: note} if note else message


def _parts_of(message: Message) -> list[types.Part]:
    """The parts that were kept, if the message still says what they say; else those that say it."""
    note = message.get(KEY) or {}
    if "parts" in note:
        kept = [types.Part.model_validate_json(json.dumps(plain_copy(part))) for part in note["parts"]]
        said = messages_of(types.Content(role=note["role"], parts=kept))
        if len(said) == 1 and _without_note(said[0]) == _without_note(plain_copy(message)):
            return kept
    return _plain_parts(message)


def _message(role: str, parts: Sequence[types.Part]) -> dict[str, Any]:
    said = [said for part in parts if not part.thought and (said := _content_part(part)) is not None]
    is_one_text = len(said) == 1 and said[0]["type"] == "text"
    content: Any = said[0]["text"] if is_one_text else said or None
    if role == "user":
        return {"role": "user", "content": content or ""}
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if thoughts := "".join(part.text or "" for part in parts if part.thought):
        message["reasoning_content"] = thoughts
    if calls := [_call(part.function_call) for part in parts if part.function_call]:
        message["tool_calls"] = calls
    elif content is None:
        message["content"] = ""
    return message


def _content_part(part: types.Part) -> dict[str, Any] | None:
    if part.function_call is not None:
        return None
    if part.text is not None:
        return {"type": "text", "text": part.text}
    if part.inline_data is not None:
        data = base64.b64encode(part.inline_data.data or b"").decode()
        return _media(part.inline_data.mime_type or "", f"data:{part.inline_data.mime_type};base64,{data}")
    if part.file_data is not None:
        return _media(part.file_data.mime_type or "", part.file_data.file_uri or "")
    rest = part.model_dump(mode="json", exclude_none=True, exclude={"thought_signature"})
    return {"type": "text", "text": json.dumps(rest)} if rest else None


def _media(kind: str, url: str) -> dict[str, Any]:
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"file_data": url}}


def _call(call: types.FunctionCall) -> dict[str, Any]:
    function = {"name": call.name or "", "arguments": json.dumps(call.args or {}, ensure_ascii=False, default=str)}
    return {"id": call.id or "", "type": "function", "function": function}


def _result(result: types.FunctionResponse) -> dict[str, Any]:
    content = json.dumps(result.response or {}, ensure_ascii=False, default=str)
    return {"role": "tool", "tool_call_id": result.id or "", "name": result.name or "", "content": content}


def _plain_parts(message: Message) -> list[types.Part]:
    """The parts that say a message, whoever made it."""
    if is_result(message):
        response = types.FunctionResponse(
            id=message.get("tool_call_id") or None, name=message.get("name") or "", response=_object(text_of(message))
        )
        return [types.Part(function_response=response)]
    parts = []
    if thoughts := message.get("reasoning_content"):
        parts.append(types.Part(text=thoughts, thought=True))
    if text := text_of(message):
        parts.append(types.Part(text=text))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = _object(function["arguments"])
        made = types.FunctionCall(id=call.get("id") or None, name=function["name"], args=arguments)
        parts.append(types.Part(function_call=made))
    return parts or [types.Part(text="")]


def _object(text: str) -> dict[str, Any]:
    """The object that a text is; text that is none is wrapped, as google-adk wraps what a tool returns."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"result": value}


def _role(message: Message) -> str:
    """Contents know two roles only: what is neither the model's is shown as the user's."""
    return "model" if message.get("role") == "assistant" else "user"


def _dumped(part: types.Part) -> Any:
    return json.loads(part.model_dump_json(exclude_none=True))


def _without_note(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != KEY}


def _without_ids(message: Mapping[str, Any]) -> dict[str, Any]:
    said = {key: value for key, value in _without_note(message).items() if key != "tool_call_id"}
    if "tool_calls" in said:
        said["tool_calls"] = [call["function"] for call in said["tool_calls"]]
    return said
