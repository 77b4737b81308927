"""google-adk contents to chat-completions messages and back.

A message has what every provider understands: text, calls, results, media. The parts of a content that it cannot express
(a thought signature, code that was run, a scheduled response) are stored with it under `adk`, so that converting it back
gives the same parts. If the message was changed in between, as by a fold that clears a result, the stored parts are ignored.
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

ADK_KEY: Final = "adk"
"""The key of google-adk's data in a message; it is never sent to a provider."""


def messages_of(content: types.Content, **metadata: Any) -> list[dict[str, Any]]:
    """One message for each tool result of a content and one for its other parts, each with `metadata` under `adk`."""
    parts = content.parts or []
    messages = [
        _with_metadata(_result(part.function_response), "user", [part], metadata)
        for part in parts
        if part.function_response is not None
    ]
    if other_parts := [part for part in parts if part.function_response is None]:
        role = "model" if content.role == "model" else "user"
        messages.append(_with_metadata(_message(role, other_parts), role, other_parts, metadata))
    return messages


def contents_of(messages: Iterable[Message]) -> list[types.Content]:
    """The contents of messages. Adjacent tool results become one content, as in google-adk."""
    contents: list[types.Content] = []
    follows_result = False
    for message in messages:
        # Contents have two roles: every message that is not the assistant's becomes a user's.
        role = "model" if message.get("role") == "assistant" else "user"
        parts = _parts_of(message)
        if follows_result and is_result(message):
            contents[-1] = types.Content(role=role, parts=[*(contents[-1].parts or []), *parts])
        else:
            contents.append(types.Content(role=role, parts=parts))
        follows_result = is_result(message)
    return contents


def signature_of(messages: Iterable[Message]) -> str:
    """The messages as text for comparison, without the ids that google-adk removes before it sends them."""
    return json.dumps([_without_ids(plain_copy(message)) for message in messages], sort_keys=True)


def _with_metadata(
    message: dict[str, Any], role: str, parts: Sequence[types.Part], metadata: Mapping[str, Any]
) -> dict[str, Any]:
    extension = dict(metadata)
    if _plain_parts(message) != list(parts):
        extension["parts"] = [json.loads(part.model_dump_json(exclude_none=True)) for part in parts]
        extension["role"] = role
    return {**message, ADK_KEY: extension} if extension else message


def _parts_of(message: Message) -> list[types.Part]:
    """The stored parts if the message has not changed since, otherwise parts built from the message."""
    extension = message.get(ADK_KEY) or {}
    if "parts" in extension:
        parts = [types.Part.model_validate_json(json.dumps(plain_copy(part))) for part in extension["parts"]]
        originals = messages_of(types.Content(role=extension["role"], parts=parts))
        if len(originals) == 1 and _without_extension(originals[0]) == _without_extension(plain_copy(message)):
            return parts
    return _plain_parts(message)


def _message(role: str, parts: Sequence[types.Part]) -> dict[str, Any]:
    blocks = [block for part in parts if not part.thought and (block := _content_part(part)) is not None]
    is_one_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    content: Any = blocks[0]["text"] if is_one_text else blocks or None
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
    fields = part.model_dump(mode="json", exclude_none=True, exclude={"thought_signature"})
    return {"type": "text", "text": json.dumps(fields)} if fields else None


def _media(mime_type: str, url: str) -> dict[str, Any]:
    if mime_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"file_data": url}}


def _call(call: types.FunctionCall) -> dict[str, Any]:
    function = {"name": call.name or "", "arguments": json.dumps(call.args or {}, ensure_ascii=False, default=str)}
    return {"id": call.id or "", "type": "function", "function": function}


def _result(result: types.FunctionResponse) -> dict[str, Any]:
    content = json.dumps(result.response or {}, ensure_ascii=False, default=str)
    return {"role": "tool", "tool_call_id": result.id or "", "name": result.name or "", "content": content}


def _plain_parts(message: Message) -> list[types.Part]:
    """Parts built from the message alone."""
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
        function_call = types.FunctionCall(
            id=call.get("id") or None, name=function["name"], args=_object(function["arguments"])
        )
        parts.append(types.Part(function_call=function_call))
    return parts or [types.Part(text="")]


def _object(text: str) -> dict[str, Any]:
    """The JSON object in a text. Any other text or value is wrapped, as google-adk wraps the results of tools."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"result": value}


def _without_extension(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != ADK_KEY}


def _without_ids(message: Mapping[str, Any]) -> dict[str, Any]:
    fields = {key: value for key, value in _without_extension(message).items() if key != "tool_call_id"}
    if "tool_calls" in fields:
        fields["tool_calls"] = [call["function"] for call in fields["tool_calls"]]
    return fields
