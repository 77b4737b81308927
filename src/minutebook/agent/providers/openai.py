"""The adapter for OpenAI's chat completions, and for every server with a compatible API.

`CompletionAccumulator` reads completions, whole or streamed, here and in the service.
"""

import json
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack

from minutebook.agent.messages import (
    Delta,
    ModelReply,
    ModelRequest,
    OnDelta,
    TextDelta,
    ThinkingDelta,
    Usage,
    usage_from,
)
from minutebook.agent.providers.client import ClientAdapter, ClientOptions
from minutebook.agent.retry import error_from_status, error_reason
from minutebook.errors import ProviderFailed
from minutebook.record.message import Message, Provider
from minutebook.record.shapes import encodable_copy

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_TEXT_KEYS: Final = ("content", "refusal", "reasoning_content", "reasoning")


def text_deltas(delta: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The key and the text of each text in a delta, reasoning first.

    Some servers send reasoning under both keys, or content as a list of parts.
    """
    for key in ("reasoning" if not delta.get("reasoning_content") else "reasoning_content", "content", "refusal"):
        value = delta.get(key)
        for part in value if isinstance(value, list) else [value]:
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str) and text:
                yield key, text
            elif isinstance(part, Mapping) and isinstance(part.get("thinking"), str | list):
                yield from (("reasoning_content", text) for _, text in text_deltas({"content": part["thinking"]}))


def call_arguments(call: Mapping[str, Any]) -> str:
    """The arguments of a tool call, or a part of them. Some servers send an object in place of its JSON text."""
    arguments = (call.get("function") or {}).get("arguments") or ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


class MessageAccumulator:
    """Builds a message from the deltas of a stream."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, delta: Mapping[str, Any]) -> None:
        for key, text in text_deltas(delta):
            self._texts.setdefault(key, []).append(text)
        for index, call_delta in enumerate(delta.get("tool_calls") or ()):
            self._add_call(call_delta, index)

    @property
    def is_empty(self) -> bool:
        return not self._calls and not self._texts

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts.get("content", ())) or None}
        message |= {key: text for key in _TEXT_KEYS[1:] if (text := "".join(self._texts.get(key, ())))}
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        elif message["content"] is None:
            message["content"] = ""
        return message

    def _add_call(self, delta: Mapping[str, Any], default_index: int) -> None:
        index = default_index if delta.get("index") is None else delta["index"]  # some servers send no index
        call = self._calls.setdefault(index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call["id"] = delta.get("id") or call["id"]
        call["function"]["name"] += (delta.get("function") or {}).get("name") or ""
        call["function"]["arguments"] += call_arguments(delta)


class CompletionAccumulator:
    """The completion received so far. Its first choice goes into the record, other choices into the minutes."""

    def __init__(self, provider: str = "upstream") -> None:
        self._provider = provider
        self._first_choice = MessageAccumulator()
        self._other_choices: dict[int, MessageAccumulator] = {}
        self._message: dict[str, Any] | None = None
        self.finish: str | None = None
        self.raw_usage: Mapping[str, Any] | None = None
        """The provider's `usage` object, unchanged."""
        self.head: dict[str, Any] = {}
        """The completion's `id`, `created` and `model`."""

    @property
    def message(self) -> dict[str, Any]:
        return self._message if self._message is not None else self._first_choice.message()

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The message of each choice."""
        return [self.message, *(self._other_choices[index].message() for index in sorted(self._other_choices))]

    @property
    def has_started(self) -> bool:
        """Whether a part of any choice has been received."""
        return self.finish is not None or self.has_output or bool(self._other_choices)

    @property
    def has_output(self) -> bool:
        """Whether the stream has sent any text or tool call; the role alone does not count."""
        return not self._first_choice.is_empty

    @property
    def usage(self) -> Usage:
        return usage_from(self.raw_usage)

    def outcome(self) -> dict[str, Any]:
        """The finish reason, the usage and the other choices, for the request's minutes."""
        outcome: dict[str, Any] = {"finish": self.finish, "usage": dict(self.raw_usage) if self.raw_usage else None}
        if self._other_choices:
            outcome["other_choices"] = self.messages[1:]
        return outcome

    def reply(self) -> ModelReply:
        """The first choice, for the runner.

        Raises:
            ProviderFailed: the stream ended before the answer was complete.
        """
        if self.finish is None:
            raise ProviderFailed(
                self._provider, None, "the stream ended before the answer was complete", retryable=True
            )
        return ModelReply(self.message, self.usage, self.finish, self.head.get("model"), self.head.get("id"))

    def add_completion(self, completion: Mapping[str, Any]) -> None:
        """Add a completion that was not streamed.

        Raises:
            ProviderFailed: the completion has no message.
        """
        choices = completion.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0].get("message"), dict):
            raise ProviderFailed(self._provider, 200, "the answer has no choices", retryable=True)
        message = {key: value for key, value in choices[0]["message"].items() if value is not None}
        self._message = {"content": None if message.get("tool_calls") else "", **message, "role": "assistant"}
        self.finish = choices[0].get("finish_reason") or "stop"
        for index, choice in enumerate(choices[1:], 1):
            self._other_choices.setdefault(index, MessageAccumulator()).add(choice.get("message") or {})
        self.raw_usage = completion.get("usage")
        self._set_head(completion)

    def add_chunk(self, chunk: Mapping[str, Any]) -> bool:
        """Add a chunk of a streamed completion, and return whether the finish reason has been received.

        Raises:
            ProviderFailed: the chunk is an error.
        """
        if "error" in chunk:
            problem, code = error_reason(chunk)
            raise error_from_status(self._provider, 500, problem, code=code)
        self._set_head(chunk)
        self.raw_usage = chunk.get("usage") or self.raw_usage
        for choice in chunk.get("choices") or ():
            index = choice.get("index") or 0
            delta = choice.get("delta") or {}
            if index == 0:
                self._first_choice.add(delta)
                self.finish = choice.get("finish_reason") or self.finish
            else:
                self._other_choices.setdefault(index, MessageAccumulator()).add(delta)
        return self.finish is not None

    def require_answer(self) -> None:
        """Check a stream that has ended.

        Raises:
            ProviderFailed: it had neither output nor a finish reason.
        """
        if self.finish is None and not self.has_output:
            raise ProviderFailed(self._provider, 200, "the stream has no choices")

    def _set_head(self, body: Mapping[str, Any]) -> None:
        if not self.head:
            self.head = {key: body[key] for key in ("id", "created", "model") if body.get(key) is not None}


def _deltas(chunk: Mapping[str, Any]) -> Iterator[Delta]:
    """The text and reasoning in the first choice of a chunk."""
    for choice in chunk.get("choices") or ():
        if choice.get("index"):
            continue
        for key, text in text_deltas(choice.get("delta") or {}):
            yield TextDelta(text) if key in {"content", "refusal"} else ThinkingDelta(text)


_MESSAGE_KEYS: Final = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "function_call", "audio"}
)
"""The keys of a message in chat completions. Others are not sent, because servers reject unknown keys."""


class OpenAIAdapter(ClientAdapter):
    """Evaluates prompts with the official client, which it creates unless `client` is given.

    `options` are added to every request unchanged (`temperature`, `max_completion_tokens`, `reasoning_effort`, …).
    `extra_keys` are message keys that this server accepts beyond OpenAI's, such as `reasoning_content`. With
    `native_output=False` the prompt's text asks for JSON, for servers without `response_format`.

    Raises:
        MissingExtra: the package openai is not installed.
    """

    provider: ClassVar[Provider] = "openai"
    name: ClassVar[str] = "openai"
    client_class: ClassVar[str] = "AsyncOpenAI"
    _error_source: ClassVar[str] = "openai"
    """The provider's name in errors about an invalid answer."""

    def __init__(
        self,
        model: str,
        *,
        client: "AsyncOpenAI | None" = None,
        extra_keys: Collection[str] = (),
        native_output: bool = True,
        strict_tools: bool = False,
        **client_options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(model, client=client, native_output=native_output, **client_options)
        self._message_keys = _MESSAGE_KEYS | set(extra_keys)
        self._strict_tools = strict_tools

    @property
    def strict_tools(self) -> bool:
        return self._strict_tools

    async def ask(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelReply:
        answer = CompletionAccumulator(self._error_source)
        await self._receive(request, answer, on_delta)
        return answer.reply()

    async def _receive(self, request: ModelRequest, answer: CompletionAccumulator, on_delta: OnDelta | None) -> None:
        """Send the request, and add what the provider sends to the answer."""
        arguments = self._arguments(request)
        if on_delta is None:
            answer.add_completion(await self._complete(arguments))
            return
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}
        async with aclosing(self._chunks(arguments)) as chunks:
            async for chunk in chunks:
                answer.add_chunk(chunk)
                for delta in _deltas(chunk):
                    on_delta(delta)

    async def _complete(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send the request, and return the completion."""
        with self.client_errors():
            completion: dict[str, Any] = (await self.client().chat.completions.create(**arguments)).to_dict()
        return completion

    async def _chunks(self, arguments: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        """Send the request, and yield the chunks of the completion."""
        with self.client_errors():
            async with await self.client().chat.completions.create(**arguments) as stream:
                async for chunk in stream:
                    yield chunk.to_dict()

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        """The client's keyword arguments.

        Messages are sent in `extra_body`, which the client does not transform: transforming 800 messages takes hundreds of
        milliseconds of CPU. Options are sent there too: the client may not have a parameter for them.
        """
        messages = [self._message(message) for message in request.messages]
        extra_body = {"messages": messages, **self._options}
        arguments: dict[str, Any] = {"model": self.model, "messages": [], "extra_body": extra_body}
        if request.tools:
            arguments |= {"tools": list(request.tools), "tool_choice": request.tool_choice}
        if request.output is not None:
            schema = {
                "name": request.output.name,
                "schema": dict(request.output.schema),
                "strict": request.output.strict,
            }
            arguments["response_format"] = {"type": "json_schema", "json_schema": schema}
        return arguments

    def _message(self, message: Message) -> dict[str, Any]:
        return {key: encodable_copy(value) for key, value in message.items() if key in self._message_keys}
