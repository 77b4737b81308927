"""OpenAI chat completions: messages, requests, responses, batches, and files with one conversation or message per line."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from minutebook.errors import InvalidMessage
from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    has_keys,
    holds_messages,
    items_of,
    list_places,
    read_each,
    text_id,
    time_of,
)
from minutebook.formats.source import Source, Value
from minutebook.formats.value_errors import shape_test
from minutebook.record.message import ROLES, Message, is_result, plain_copy, require_message, type_of
from minutebook.wire.read import read_input
from minutebook.wire.responses import is_item_part
from minutebook.wire.write import FORMAT_KEYS

_FOREIGN_PARTS: Final = frozenset(
    {"tool_use", "tool_result", "redacted_thinking", "server_tool_use", "mcp_tool_use", "image", "document"}
)
"""Types of parts that Anthropic's API has."""
ANTHROPIC_KEYS: Final = frozenset(
    {"system", "stop_sequences", "anthropic_version", "anthropic_beta", "mcp_servers", "context_management"}
)
"""Keys of requests to Anthropic's API that chat completions do not have."""
_FOREIGN_KEYS: Final = ANTHROPIC_KEYS | frozenset(
    {"contents", "systemInstruction", "system_instruction", "generationConfig", "max_output_tokens"}
)
"""Keys of requests to other APIs. Reading such a request as chat would leave out what they say."""
_EVIDENCE: Final = frozenset(
    {"role system", "role developer", "role tool", "tool_calls", "tool_call_id", "reasoning_content", "refusal"}
    | {"function", "functions", "function_call", "seed", "response_format", "max_completion_tokens", "logit_bias"}
    | {"parallel_tool_calls", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "n", "stop"}
    | {"stream_options", "reasoning_effort", "body"}
)

_MOVED_TEXT: Final = "[the result is in the next user message]"


@shape_test
def is_message(value: Any) -> bool:
    """Whether a value is a chat message."""
    if (
        not isinstance(value, Mapping)
        or value.get("role") not in ROLES
        or "parts" in value
        or "toolInvocations" in value
    ):
        return False
    content = value.get("content")
    if isinstance(content, (list, tuple)):
        return all(isinstance(part, Mapping) and _is_part(part) for part in content)
    is_text = isinstance(content, str) or content is None
    return is_text and bool(value.keys() & {"content", "tool_calls", "function_call", "audio"})


def _is_part(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    is_foreign = kind in _FOREIGN_PARTS or is_item_part(kind)
    return isinstance(kind, str) and not is_foreign and not part.keys() & {"citations", "signature"}


def messages_of(value: Any) -> list[Any] | None:
    """The messages of a list, a request or a line of a batch; None if it has none."""
    if isinstance(value, Mapping):
        body = value.get("body", value.get("params"))
        if "custom_id" in value and isinstance(body, Mapping):
            value = body
        value = value.get("messages")
    return value if isinstance(value, list) else None


@shape_test
def matches(value: Any) -> bool:
    messages = messages_of(value)
    if messages is not None:
        may_be_chat = not messages or any(map(is_message, messages))
        return may_be_chat and all(map(_is_readable, messages)) and not _has_foreign_keys(value)
    return is_message(value) or _response_of(value) is not None


def _has_foreign_keys(value: Any) -> bool:
    body = value.get("body", value.get("params")) if isinstance(value, Mapping) else None
    return any(part.keys() & _FOREIGN_KEYS for part in (value, body) if isinstance(part, Mapping))


@shape_test
def _is_readable(message: Any) -> bool:
    """Whether a value is a chat message, or one that providers reject: without content, or with an unknown role."""
    return is_message(message) or (
        isinstance(message, Mapping)
        and isinstance(message.get("role"), str)
        and message["role"] != "model"
        and (message.get("content") is None or isinstance(message["content"], str))
        and not message.keys() & {"parts", "toolInvocations", "type"}
    )


def _response_of(value: Any) -> Any:
    """The completion of a response or of a line of a batch's output; None if the value is neither."""
    if has_keys(value, "custom_id", "response") and isinstance(value["response"], Mapping):
        value = value["response"].get("body")
    return value if has_keys(value, "choices") and value.get("object") in {None, "chat.completion"} else None


def read(source: Source) -> Iterator[SourceConversation]:
    if holds_messages(source, is_message, matches):
        yield read_message_stream(source, _is_readable, chat_items)
    else:
        yield from read_each(source, _is_conversation, partial(_conversation, source))


def _is_conversation(value: Any) -> bool:
    """Whether a value contains messages. In a file of such values, a single message belongs to none of them."""
    return matches(value) and (messages_of(value) is not None or _response_of(value) is not None)


def chat_items(messages: Iterable[Any], places: Iterable[str]) -> list[SourceMessage]:
    """Chat messages, each with its place, unchanged: also those that providers reject, so that they can be repaired."""
    return [
        SourceMessage(require_message(message, index), place)
        for index, (message, place) in enumerate(zip(messages, places, strict=False))
    ]


def read_message_stream(
    source: Source,
    matches: Callable[[Any], bool],
    read_items: Callable[[Iterable[Any], Iterable[str]], list[SourceMessage]] = items_of,
) -> SourceConversation:
    """Read a file whose values are messages (in other APIs: contents or items) of one conversation."""
    values = []
    for value in source.values():
        if matches(value.data):
            values.append(value)
        else:
            source.skip(value.place, "is not a message of this format")
    # Each element of the array is a message.
    values = [Value(value.data, value.place.replace("element", "message")) for value in values]
    return SourceConversation(items=read_valid(source, values, read_items))


def read_valid(
    source: Source,
    values: list[Value],
    read_items: Callable[[Iterable[Any], Iterable[str]], list[SourceMessage]] = items_of,
) -> list[SourceMessage]:
    """Read messages of one conversation. Those that are malformed are skipped."""
    while True:
        try:
            return read_items([value.data for value in values], [value.place for value in values])
        except InvalidMessage as error:
            invalid = values.pop(error.index or 0)
            source.skip(invalid.place, str(error))


def _conversation(source: Source, value: Any, place: str) -> SourceConversation:
    response = _response_of(value)
    if response is not None:
        answer = read_input(response)
        at = time_of(response.get("created"))
        for index in range(1, len(response["choices"])):
            source.skip(f"{place}, choices[{index}]", "is another answer to the same request")
        items = [SourceMessage(message, place, at, answer.model, answer.usage) for message in answer.messages]
        return SourceConversation(
            items=items, id=text_id(value.get("custom_id", response.get("id"))), model=answer.model
        )
    messages = messages_of(value) or []
    items = chat_items(messages, list_places(place))
    if not isinstance(value, Mapping):
        return SourceConversation(items=items)
    return SourceConversation(items=items, **facts_of(value), data=without_messages(value))


def facts_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """The id, the model, the title and the time of an object with messages."""
    body = value.get("body", value.get("params"))
    inner = body if isinstance(body, Mapping) else {}
    return {
        "id": next(
            filter(None, (text_id(value.get(key)) for key in ("id", "custom_id", "conversation_id", "session_id"))),
            None,
        ),
        "model": text_id(value.get("model", inner.get("model"))),
        "title": text_id(value.get("title")),
        "created_at": time_of(value.get("created_at", value.get("created"))),
    }


def without_messages(value: Mapping[str, Any], name: str = "messages") -> dict[str, Any]:
    """The fields around the messages. The key of the messages stays, with None, to keep the order of the keys."""
    return {key: None if key == name else plain_copy(inner) for key, inner in value.items()}


def chat_message(message: Message) -> dict[str, Any]:
    """The message without the fields that keep details of other formats."""
    return {key: plain_copy(value) for key, value in message.items() if key not in FORMAT_KEYS}


def with_text_results(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages with the images and files of tool results in a user message after the results.

    Chat completions accept only text in a tool result.
    """
    moved: list[Any] = []
    for message in messages:
        if moved and not is_result(message):
            yield {"role": "user", "content": moved}
            moved = []
        content = message.get("content")
        if not is_result(message) or not isinstance(content, (list, tuple)):
            yield message
            continue
        texts = [part for part in content if type_of(part) == "text"]
        moved += [part for part in content if type_of(part) != "text"]
        yield message if len(texts) == len(content) else {**message, "content": texts or _MOVED_TEXT}
    if moved:
        yield {"role": "user", "content": moved}


def write(conversation: SourceConversation) -> Any:
    is_chat = conversation.format == FORMAT.name
    messages = list(map(chat_message, conversation.messages if is_chat else with_text_results(conversation.messages)))
    data = dict(conversation.data) or fact_fields(conversation)
    for name in ("body", "params"):
        if "custom_id" in data and isinstance(data.get(name), Mapping):
            return {**data, name: {**data[name], "messages": messages}}
    return {**data, "messages": messages}


def fact_fields(conversation: SourceConversation) -> dict[str, Any]:
    """The id, model and title as fields, for a conversation that was read from another format."""
    facts = {"id": conversation.id, "model": conversation.model, "title": conversation.title}
    return {key: value for key, value in facts.items() if value is not None}


FORMAT: Final = Format(
    name="openai-chat",
    title="OpenAI chat completions: messages, requests, responses, batches (JSON or JSONL)",
    has_api_messages=True,
    matches=matches,
    read=read,
    write=write,
    evidence=_EVIDENCE,
)
