"""Models behind OpenAI's chat completions: OpenAI's own, and every server that speaks as it does.

`Answer` is the one place that reads a completion, whole or from the chunks of a stream; the service uses it too.
"""

from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack

from minutebook.agent.messages import Delta, ModelReply, ModelRequest, OnDelta, TextDelta, ThinkingDelta, Usage
from minutebook.agent.providers.client import ClientAdapter, ClientOptions
from minutebook.agent.retry import error_reason, from_status
from minutebook.errors import ProviderFailed
from minutebook.record.message import Message, Provider, thawed

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_TEXTS: Final = ("content", "refusal", "reasoning_content", "reasoning")


class Assembly:
    """Collects deltas until they are a message."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, delta: Mapping[str, Any]) -> None:
        for key in _TEXTS:
            if isinstance(delta.get(key), str):
                self._texts.setdefault(key, []).append(delta[key])
        for place, piece in enumerate(delta.get("tool_calls") or ()):
            self._add_call(piece, place)

    @property
    def is_empty(self) -> bool:
        return not self._calls and not any(any(pieces) for pieces in self._texts.values())

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts.get("content", ())) or None}
        message |= {key: text for key in _TEXTS[1:] if (text := "".join(self._texts.get(key, ())))}
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        elif message["content"] is None:
            message["content"] = ""
        return message

    def _add_call(self, piece: Mapping[str, Any], place: int) -> None:
        index = piece.get("index")
        call = self._calls.setdefault(
            place if index is None else index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call["id"] = piece.get("id") or call["id"]
        function = piece.get("function") or {}
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""


class Answer:
    """What the provider has said so far. The record goes on with its first choice; others are kept in the minutes."""

    def __init__(self, provider: str = "upstream") -> None:
        self._provider = provider
        self._assembly = Assembly()
        self._others: dict[int, Assembly] = {}
        self._message: dict[str, Any] | None = None
        self.finish: str | None = None
        self.reported: Mapping[str, Any] | None = None
        """The provider's usage, as it wrote it."""
        self.head: dict[str, Any] = {}
        """Its id, time and model."""

    @property
    def message(self) -> dict[str, Any]:
        return self._message if self._message is not None else self._assembly.message()

    @property
    def has_words(self) -> bool:
        """Whether anything was said yet; that it is the assistant who speaks is not."""
        return not self._assembly.is_empty

    @property
    def usage(self) -> Usage:
        return usage_of(self.reported)

    def outcome(self) -> dict[str, Any]:
        """How it ended, for the request's minutes."""
        ended: dict[str, Any] = {"finish": self.finish, "usage": dict(self.reported) if self.reported else None}
        if self._others:
            ended["other_choices"] = [self._others[index].message() for index in sorted(self._others)]
        return ended

    def reply(self) -> ModelReply:
        """The first choice, for the runner.

        Raises:
            ProviderFailed: the answer is not complete.
        """
        if self.finish is None:
            raise ProviderFailed(self._provider, None, "the stream ended before the answer did", retryable=True)
        return ModelReply(self.message, self.usage, self.finish, self.head.get("model"), self.head.get("id"))

    def take_whole(self, completion: Mapping[str, Any]) -> None:
        """A completion that was not streamed.

        Raises:
            ProviderFailed: it has no answer in it.
        """
        choices = completion.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0].get("message"), dict):
            raise ProviderFailed(self._provider, 200, "the answer has no choices", retryable=True)
        message = {key: value for key, value in choices[0]["message"].items() if value is not None}
        self._message = {"role": "assistant", "content": None if message.get("tool_calls") else "", **message}
        self.finish = choices[0].get("finish_reason") or "stop"
        for index, choice in enumerate(choices[1:], 1):
            self._others.setdefault(index, Assembly()).add(choice.get("message") or {})
        self.reported = completion.get("usage")
        self._take_head(completion)

    def take(self, chunk: Mapping[str, Any]) -> bool:
        """A piece of a streamed completion; whether its end has begun.

        Raises:
            ProviderFailed: the provider says that it cannot go on.
        """
        if "error" in chunk:
            problem, code = error_reason(chunk)
            raise from_status(self._provider, 500, problem, code=code)
        self._take_head(chunk)
        self.reported = chunk.get("usage") or self.reported
        for choice in chunk.get("choices") or ():
            index = choice.get("index") or 0
            assembly = self._assembly if index == 0 else self._others.setdefault(index, Assembly())
            assembly.add(choice.get("delta") or {})
            if index == 0:
                self.finish = choice.get("finish_reason") or self.finish
        return self.finish is not None

    def _take_head(self, said: Mapping[str, Any]) -> None:
        if not self.head:
            self.head = {key: said[key] for key in ("id", "created", "model") if said.get(key) is not None}


def usage_of(reported: Mapping[str, Any] | None) -> Usage:
    """What a completion reports; servers that report nothing, or less, are taken at their word."""
    if not reported:
        return Usage()
    sent, answered = reported.get("prompt_tokens_details") or {}, reported.get("completion_tokens_details") or {}
    return Usage(
        input_tokens=reported.get("prompt_tokens") or 0,
        output_tokens=reported.get("completion_tokens") or 0,
        cached_tokens=sent.get("cached_tokens") or 0,
        reasoning_tokens=answered.get("reasoning_tokens") or 0,
    )


def _deltas(chunk: Mapping[str, Any]) -> Iterator[Delta]:
    """The words of a chunk's first choice."""
    for choice in chunk.get("choices") or ():
        delta = {} if choice.get("index") else choice.get("delta") or {}
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            yield ThinkingDelta(thought)
        if text := delta.get("content") or delta.get("refusal"):
            yield TextDelta(text)


_KEYS: Final = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "function_call", "audio"})
"""What chat completions know of a message; servers refuse keys they do not know."""


class OpenAIAdapter(ClientAdapter):
    """Evaluates prompts through the official client, which it makes itself unless it is given one.

    `options` go into every request as they are (`temperature`, `max_completion_tokens`, `reasoning_effort`, …).
    `extra_keys` are keys of messages that this server knows beyond OpenAI's, such as `reasoning_content`. With
    `native_output=False` the prompt's text asks for JSON, for servers that know no `response_format`.

    Raises:
        MissingExtra: the package openai is not installed.
    """

    provider: ClassVar[Provider] = "openai"
    name: ClassVar[str] = "openai"
    client_class: ClassVar[str] = "AsyncOpenAI"
    _answered_by: ClassVar[str] = "openai"  # whom the error names when an answer cannot be used

    def __init__(
        self,
        model: str,
        *,
        client: "AsyncOpenAI | None" = None,
        extra_keys: Collection[str] = (),
        native_output: bool = True,
        strict_tools: bool = False,
        **shared: Unpack[ClientOptions],
    ) -> None:
        super().__init__(model, client=client, native_output=native_output, **shared)
        self._keys = _KEYS | set(extra_keys)
        self._strict_tools = strict_tools

    @property
    def strict_tools(self) -> bool:
        return self._strict_tools

    async def ask(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelReply:
        arguments, answer = self._arguments(request), Answer(self._answered_by)
        if on_delta is None:
            answer.take_whole(await self._complete(arguments))
            return answer.reply()
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}
        async with aclosing(self._chunks(arguments)) as chunks:
            async for chunk in chunks:
                answer.take(chunk)
                for delta in _deltas(chunk):
                    on_delta(delta)
        return answer.reply()

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
        """The request as keyword arguments of the client; options that it may not know are its `extra_body`."""
        messages = [self._message(message) for message in request.messages]
        arguments: dict[str, Any] = {"model": self.model, "messages": messages, "extra_body": self._options}
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
        return {key: thawed(value) for key, value in message.items() if key in self._keys}
