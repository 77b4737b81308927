"""Models behind OpenAI's chat completions: OpenAI's own, and every server that speaks as it does.

An assistant message put together from the pieces of a stream of chat completions.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.messages import Delta, ModelReply, ModelRequest, OnDelta, TextDelta, ThinkingDelta, Usage
from minutebook.agent.retry import Throttle, from_status, from_transport, told, transport_errors
from minutebook.agent.sync import Clients
from minutebook.agent.telemetry import Telemetry
from minutebook.errors import MissingExtra, ProviderFailed
from minutebook.record.message import Message, Provider, thawed
from minutebook.tokens import TokenCounter

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


_KEYS: Final = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "function_call", "audio"})
"""What chat completions know of a message; servers refuse keys they do not know."""


class OpenAIAdapter(ProviderAdapter):
    """Evaluates prompts through the official client, which it makes itself unless it is given one.

    `options` go into every request as they are (`temperature`, `max_completion_tokens`, `reasoning_effort`, …).
    `extra_keys` are keys of messages that this server knows beyond OpenAI's, such as `reasoning_content`. With
    `native_output=False` the prompt's text asks for JSON, for servers that know no `response_format`.

    Raises:
        MissingExtra: the package openai is not installed.
    """

    provider: ClassVar[Provider] = "openai"
    name: ClassVar[str] = "openai"

    def __init__(
        self,
        model: str,
        *,
        client: "AsyncOpenAI | None" = None,
        base_url: str | None = None,
        api_key: str | None = None,
        options: Mapping[str, Any] | None = None,
        extra_keys: Collection[str] = (),
        native_output: bool = True,
        strict_tools: bool = False,
        throttle: Throttle | None = None,
        telemetry: Telemetry | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        super().__init__(model, throttle=throttle, telemetry=telemetry, counter=counter)
        try:
            import openai
        except ImportError as error:
            raise MissingExtra("openai", "openai") from error
        self._errors = openai
        # It must not retry by itself: that is the throttle's, which knows how long we may wait.
        self._clients: Clients[AsyncOpenAI] = Clients(
            lambda: openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0), client
        )
        self._options = dict(options or {})
        self._keys = _KEYS | set(extra_keys)
        self._native_output = native_output
        self._strict_tools = strict_tools

    @property
    def native_output(self) -> bool:
        return self._native_output

    @property
    def strict_tools(self) -> bool:
        return self._strict_tools

    async def ask(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelReply:
        arguments = self._arguments(request)
        async with self._mapped():
            completions = self._clients.here().chat.completions
            if on_delta is not None:
                return await self._listen(
                    await completions.create(**arguments, stream=True, stream_options={"include_usage": True}), on_delta
                )
            return self._reply((await completions.create(**arguments)).to_dict())

    async def aclose(self) -> None:
        await self._clients.close()

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
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

    def _reply(self, completion: Mapping[str, Any]) -> ModelReply:
        choices = completion.get("choices") or ()
        if not choices:
            raise ProviderFailed(self.name, 200, "the answer has no choices", retryable=True)
        message = {key: value for key, value in choices[0]["message"].items() if value is not None}
        message = {"role": "assistant", "content": None if message.get("tool_calls") else "", **message}
        return ModelReply(
            message,
            usage_of(completion.get("usage")),
            choices[0].get("finish_reason") or "stop",
            completion.get("model"),
            completion.get("id"),
        )

    async def _listen(self, stream: Any, on_delta: OnDelta) -> ModelReply:
        assembly, usage, finish = Assembly(), None, None
        head: dict[str, Any] = {}
        async with stream:
            async for piece in stream:
                chunk = piece.to_dict()
                head = head or chunk
                usage = chunk.get("usage") or usage
                for choice in chunk.get("choices") or ():
                    finish = choice.get("finish_reason") or finish
                    assembly.add(choice.get("delta") or {})
                    for delta in _deltas(choice.get("delta") or {}):
                        on_delta(delta)
        if finish is None:
            raise ProviderFailed(self.name, None, "the stream ended before the answer did", retryable=True)
        return ModelReply(assembly.message(), usage_of(usage), finish, head.get("model"), head.get("id"))

    @asynccontextmanager
    async def _mapped(self) -> AsyncIterator[None]:
        """The client's errors as ours, at this one seam."""
        openai = self._errors
        try:
            yield
        except openai.APIStatusError as error:
            headers = dict(error.response.headers)
            said = told(error.body, error.message)
            raise from_status(self.name, error.status_code, said, code=error.code, headers=headers) from error
        except openai.APIConnectionError as error:
            raise from_transport(self.name, error) from error
        except openai.APIError as error:  # in the middle of a stream there is no status any more
            raise from_status(self.name, 500, told(error.body, error.message), code=error.code) from error
        except transport_errors() as error:
            raise from_transport(self.name, error) from error


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


def _deltas(delta: Mapping[str, Any]) -> list[Delta]:
    found: list[Delta] = []
    if thought := delta.get("reasoning_content") or delta.get("reasoning"):
        found.append(ThinkingDelta(thought))
    if text := delta.get("content") or delta.get("refusal"):
        found.append(TextDelta(text))
    return found
