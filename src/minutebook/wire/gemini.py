"""Contents of Gemini's API to chat messages and back without loss.

One content may become several messages: every function response becomes a tool message. If a chat message cannot express
the parts (thought signatures, executed code, missing ids), they are stored in it under `GEMINI_KEY`, and written back if
the message was not changed. Field names are read in both spellings, `functionCall` and `function_call`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from minutebook.errors import InvalidMessage
from minutebook.record.message import (
    Message,
    call_arguments,
    call_ids,
    call_names,
    is_result,
    is_system,
    leading_system_count,
    plain_copy,
    result_id,
    role_of,
    text_of,
)
from minutebook.record.parts import placeholder_part
from minutebook.wire.anthropic import FILE_NAME, argument_object

GEMINI_KEY: Final = "gemini_content"
"""Message key for an object with the original content: `parts`, the digest `of` the message when they were stored,
`joined` if the message before is from the same content, and the content's other `fields`."""
Part = Mapping[str, Any]
_TEXT_KEYS: Final = frozenset({"text"})
_AUDIO_TYPES: Final = {"audio/wav": "wav", "audio/mp3": "mp3"}
"""Media types of audio → the formats that chat completions have."""


def contents_to_messages(contents: Iterable[Any]) -> list[dict[str, Any]]:
    """The chat messages for a list of contents.

    Raises:
        InvalidMessage: a content has no list of parts; `index` is the content's.
    """
    return [message for _, message in numbered_messages(contents)]


def numbered_messages(contents: Iterable[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Like `contents_to_messages`. Yields each message with the index of its content."""
    reader = _ContentReader()
    for index, content in enumerate(contents):
        for message in reader.messages(content, index):
            yield index, message


def system_message(instruction: Any) -> dict[str, Any] | None:
    """The system message for a `systemInstruction`: a text, or a content with parts. None if it has no text."""
    if isinstance(instruction, Mapping):
        parts = [part for part in instruction.get("parts") or () if isinstance(part, Mapping)]
        text = "\n".join(str(part["text"]) for part in parts if part.get("text") is not None)
    else:
        text = instruction if isinstance(instruction, str) else ""
    return {"role": "system", "content": text} if text else None


def messages_to_contents(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The contents for chat messages without their leading system messages, which are the `systemInstruction`."""
    contents: list[dict[str, Any]] = []
    previous: Message = {}
    previous_role = ""
    tool_names: dict[str, str] = {}
    omitted_ids: set[str] = set()
    for message in messages[leading_system_count(messages) :]:
        stored = message.get(GEMINI_KEY) or {}
        tool_names |= dict(zip(call_ids(message), call_names(message), strict=True))
        parts = _parts(message, tool_names)
        written_calls = [call for part in parts if (call := _field(part, "functionCall")) is not None]
        for call_id, written in zip(call_ids(message), written_calls, strict=False):
            if not written.get("id"):  # its response must not have one either
                omitted_ids.add(call_id)
        if is_result(message) and result_id(message) in omitted_ids:
            (_field(parts[0], "functionResponse") or {}).pop("id", None)
        role = "model" if role_of(message) == "assistant" else "user"
        # The responses of one turn are one content. A repair may have added, moved or removed a neighbour.
        joins_result = is_result(message) and is_result(previous) and GEMINI_KEY not in {*message} & {*previous}
        if previous_role == role and (stored.get("joined") or joins_result):
            contents[-1]["parts"] += parts
        else:
            content = {"role": role, "parts": parts, **plain_copy(stored.get("fields", {}))}
            contents.append({key: value for key, value in content.items() if key != "role" or value is not None})
        previous, previous_role = message, role
    return contents


def gemini_arguments(messages: Sequence[Message]) -> dict[str, Any]:
    """`contents`, and `systemInstruction` if there is a system message, for a `generateContent` request."""
    text = "\n\n".join(map(text_of, messages[: leading_system_count(messages)]))
    instruction = {"systemInstruction": {"parts": [{"text": text}]}} if text else {}
    return {"contents": messages_to_contents(messages), **instruction}


class _ContentReader:
    """Converts contents one by one. Calls without an id are paired with responses by name and order."""

    def __init__(self) -> None:
        self._open_calls: list[tuple[str, str]] = []
        """Name and id of each call that has no response yet."""
        self._new_id_count = 0

    def messages(self, content: Any, index: int) -> list[dict[str, Any]]:
        """Convert the next content."""
        if not isinstance(content, Mapping) or not isinstance(content.get("parts"), (list, tuple)):
            raise InvalidMessage(
                "parts", "is not a list; expected a content of Gemini's API with role and parts", index
            )
        parts = content["parts"]
        if not parts:
            raise InvalidMessage("parts", "is empty; expected a content of Gemini's API with at least one part", index)
        if not all(isinstance(part, Mapping) for part in parts):
            raise InvalidMessage("parts", "has an item that is not an object", index)
        if content.get("role") == "model":
            messages = [self._assistant_message(parts)]
        else:
            messages = [self._result_message(part) for part in parts if _field(part, "functionResponse") is not None]
            other_parts = [part for part in parts if _field(part, "functionResponse") is None]
            if other_parts or not messages:
                messages.append(_user_message(other_parts))
        _store_content(messages, content)
        return messages

    def _assistant_message(self, parts: Sequence[Part]) -> dict[str, Any]:
        calls = [self._call(part) for part in parts if _field(part, "functionCall") is not None]
        texts = [str(part["text"]) for part in parts if part.get("text") is not None and not part.get("thought")]
        text = "".join(texts)
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
        if calls:
            message["tool_calls"] = calls
        return _with_parts(message, parts)

    def _call(self, part: Part) -> dict[str, Any]:
        call = _field(part, "functionCall")
        name = str(call.get("name") or "")
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id:
            self._new_id_count += 1
            call_id = f"call_{self._new_id_count}"
        self._open_calls.append((name, call_id))
        arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

    def _result_message(self, part: Part) -> dict[str, Any]:
        response = _field(part, "functionResponse")
        name, call_id = str(response.get("name") or ""), response.get("id")
        if not isinstance(call_id, str) or not call_id:
            call_id = next((open_id for open_name, open_id in self._open_calls if open_name == name), "")
        self._open_calls = [call for call in self._open_calls if call[1] != call_id]
        message = {"role": "tool", "tool_call_id": call_id, "name": name, "content": _response_text(response)}
        return _with_parts(message, [part])


def _store_content(messages: list[dict[str, Any]], content: Mapping[str, Any]) -> None:
    """Store `joined` in all messages of the content, and the content's other fields in the first message."""
    fields = {key: plain_copy(value) for key, value in content.items() if key not in {"role", "parts"}}
    if content.get("role") not in {"user", "model"}:
        fields["role"] = content.get("role")
    for index, message in enumerate(messages):
        stored = message.setdefault(GEMINI_KEY, {})
        stored["joined"] = index > 0
        if fields and index == 0:
            stored["fields"] = fields


def _field(part: Part, name: str) -> Any:
    """A field of a part in either spelling; None if it is missing or not an object."""
    snake_name = "".join(f"_{char.lower()}" if char.isupper() else char for char in name)
    value = part.get(name, part.get(snake_name))
    return value if isinstance(value, Mapping) else None


def _user_message(parts: Sequence[Part]) -> dict[str, Any]:
    texts = [str(part["text"]) for part in parts if part.keys() == _TEXT_KEYS and part["text"] is not None]
    if len(texts) == len(parts):
        content: Any = texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts] or ""
    else:
        content = [chat_part(part) for part in parts]
    return _with_parts({"role": "user", "content": content}, parts)


def chat_part(part: Part) -> dict[str, Any]:
    """The part as a part of a chat message. A part that chat completions do not have becomes a text with its JSON."""
    data, file = _field(part, "inlineData"), _field(part, "fileData")
    if part.get("text") is not None:  # the dump of a client's object has a null in each field that is not set
        return {"type": "text", "text": str(part["text"])}
    media = data or file or {}
    media_type = str(media.get("mimeType") or media.get("mime_type") or "")
    if data is not None and media_type in _AUDIO_TYPES:
        audio = {"data": str(data.get("data", "")), "format": _AUDIO_TYPES[media_type]}
        return {"type": "input_audio", "input_audio": audio}
    data_url = f"data:{media_type};base64,{media.get('data', '')}"
    if data is not None and media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": data_url}}
    if data is not None and media_type == "application/pdf":
        return {"type": "file", "file": {"filename": FILE_NAME, "file_data": data_url}}
    if file is not None and media_type.startswith("image/") and (uri := file.get("fileUri") or file.get("file_uri")):
        return {"type": "image_url", "image_url": {"url": str(uri)}}
    return {"type": "text", "text": json.dumps(plain_copy(part), ensure_ascii=False)}


def _response_text(response: Mapping[str, Any]) -> str:
    """The text of a function response: its only field if that is `output` or `result` and a text, else its JSON."""
    value = response.get("response")
    if isinstance(value, Mapping) and len(value) == 1:
        text = value.get("output", value.get("result"))
        if isinstance(text, str):
            return text
    return json.dumps(plain_copy(value), ensure_ascii=False)


def _with_parts(message: dict[str, Any], parts: Sequence[Part]) -> dict[str, Any]:
    """The message. Stores the original parts in it if the parts built from it differ."""
    if _derived_parts(message, {}) != [plain_copy(part) for part in parts]:
        message[GEMINI_KEY] = {"parts": plain_copy(parts), "of": _digest(message)}
    return message


def _digest(message: Message) -> str:
    """A digest of the message without `GEMINI_KEY`. It shows whether the message was changed after its parts were stored."""
    fields = {key: value for key, value in message.items() if key != GEMINI_KEY}
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def _parts(message: Message, tool_names: Mapping[str, str]) -> list[dict[str, Any]]:
    """The original parts if the message was not changed, else new ones. `tool_names` has the tool of each call id."""
    stored = message.get(GEMINI_KEY) or {}
    if "parts" in stored and stored.get("of") == _digest(message):
        copy: list[dict[str, Any]] = plain_copy(stored["parts"])
        return copy
    return _derived_parts(message, tool_names)


def _derived_parts(message: Message, tool_names: Mapping[str, str]) -> list[dict[str, Any]]:
    """The parts built from the message alone, without `GEMINI_KEY`."""
    if is_result(message):
        call_id = result_id(message)
        name = message.get("name") or tool_names.get(call_id, "")
        response = {"name": name, "response": {"output": text_of(message)}}
        return [{"functionResponse": {"id": call_id, **response} if call_id else response}]
    content = message.get("content")
    content_parts = [{"text": content}] if isinstance(content, str) and content else []
    if isinstance(content, (list, tuple)):
        content_parts = [_gemini_part(part) for part in content if isinstance(part, Mapping)]
    calls = list(map(_function_call, call_ids(message), call_names(message), call_arguments(message)))
    text = "" if is_system(message) else text_of(message) or str(message.get("refusal") or "")
    return content_parts + calls or [{"text": text}]


def _function_call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    function_call = {"name": name, "args": argument_object(arguments)}
    return {"functionCall": {"id": call_id, **function_call} if call_id else function_call}


def _gemini_part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind, audio = part.get("type"), part.get("input_audio")
    text = part.get("text", part.get("refusal"))
    if isinstance(text, str):
        return {"text": text}
    if isinstance(audio, Mapping) and isinstance(audio.get("data"), str):
        return {"inlineData": {"mimeType": f"audio/{audio.get('format') or 'wav'}", "data": audio["data"]}}
    url = _url(part)
    if url is None:
        return {"text": placeholder_part(part)["text"]}
    if url.startswith("data:") and ";base64," in url:
        media_type, _, data = url.removeprefix("data:").partition(";base64,")
        return {"inlineData": {"mimeType": media_type, "data": data}}
    return {"fileData": {"mimeType": "image/*" if kind == "image_url" else "application/pdf", "fileUri": url}}


def _url(part: Mapping[str, Any]) -> str | None:
    """The URL or data URL of an image or a document."""
    kind = part.get("type")
    value = part.get(str(kind)) if kind in {"image_url", "document_url", "file"} else None
    fields = value if isinstance(value, Mapping) else {"url": value}
    url = next((fields[key] for key in ("url", "file_data", "file_url") if key in fields), None)
    return url if isinstance(url, str) else None
