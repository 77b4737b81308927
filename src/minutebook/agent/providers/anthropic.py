"""Models behind Anthropic's messages."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.messages import ModelReply, ModelRequest, OnDelta, TextDelta, ThinkingDelta, Usage
from minutebook.agent.retry import Throttle, from_status, from_transport, told, transport_errors
from minutebook.agent.sync import Clients
from minutebook.agent.telemetry import Telemetry
from minutebook.errors import MissingExtra
from minutebook.record.message import Provider
from minutebook.tokens import TokenCounter
from minutebook.wire.anthropic import BLOCKS, THOUGHT_AFTER, from_anthropic, to_anthropic

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_FINISH: Final = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}
_STATUS: Final = {"overloaded_error": 529, "rate_limit_error": 429, "timeout_error": 504, "request_too_large": 413}
"""What an error inside a stream would have had as its status."""
_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}


class AnthropicAdapter(ProviderAdapter):
    """Evaluates prompts through the official client, which it makes itself unless it is given one.

    `options` go into every request as they are (`temperature`, `thinking`, …). Prompts are marked for the provider's
    cache unless `cache=False`. Signed thinking goes back byte for byte while all that stood before it is unchanged, and
    not at all afterwards.

    Raises:
        MissingExtra: the package anthropic is not installed.
    """

    provider: ClassVar[Provider] = "anthropic"
    name: ClassVar[str] = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        client: "AsyncAnthropic | None" = None,
        base_url: str | None = None,
        api_key: str | None = None,
        max_output_tokens: int = 8192,
        options: Mapping[str, Any] | None = None,
        cache: bool = True,
        native_output: bool = False,
        throttle: Throttle | None = None,
        telemetry: Telemetry | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        super().__init__(model, throttle=throttle, telemetry=telemetry, counter=counter)
        try:
            import anthropic
        except ImportError as error:
            raise MissingExtra("anthropic", "anthropic") from error
        self._errors = anthropic
        # It must not retry by itself: that is the throttle's, which knows how long we may wait.
        self._clients: Clients[AsyncAnthropic] = Clients(
            lambda: anthropic.AsyncAnthropic(base_url=base_url, api_key=api_key, max_retries=0), client
        )
        self._max_output_tokens = max_output_tokens
        self._options = dict(options or {})
        self._cache = cache
        self._native_output = native_output

    @property
    def native_output(self) -> bool:
        return self._native_output

    async def ask(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelReply:
        arguments, prompt = self._arguments(request)
        async with self._mapped():
            messages = self._clients.here().messages
            if on_delta is None:
                return _reply((await messages.create(**arguments)).to_dict(), prompt)
            async with messages.stream(**arguments) as stream:
                async for event in stream:
                    if event.type == "text":
                        on_delta(TextDelta(event.text))
                    elif event.type == "thinking":
                        on_delta(ThinkingDelta(event.thinking))
                return _reply((await stream.get_final_message()).to_dict(), prompt)

    async def aclose(self) -> None:
        await self._clients.close()

    def _arguments(self, request: ModelRequest) -> tuple[dict[str, Any], str]:
        tools = [_tool(spec["function"]) for spec in request.tools]
        sent = to_anthropic(request.messages, tools=tools)
        options = dict(self._options)
        arguments: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self._max_output_tokens,
            "messages": sent.messages,
            "extra_body": options,
        }
        if sent.system:
            arguments["system"] = sent.system
        if tools:
            arguments |= {"tools": tools, "tool_choice": _choice(request.tool_choice)}
        if self._cache:
            arguments["cache_control"] = {"type": "ephemeral"}
        if sent.unthought and "thinking" in options:
            options["thinking"] = {"type": "disabled"}
        if request.output is not None:
            schema = {"type": "json_schema", "schema": dict(request.output.schema)}
            options["output_config"] = {**options.get("output_config", {}), "format": schema}
        return arguments, sent.prompt

    @asynccontextmanager
    async def _mapped(self) -> AsyncIterator[None]:
        """The client's errors as ours, at this one seam."""
        anthropic = self._errors
        try:
            yield
        except anthropic.APIStatusError as error:
            kind = _kind(error.body)
            status = _STATUS.get(kind or "", error.status_code) if error.status_code == 200 else error.status_code
            status = 500 if status == 200 else status
            headers = dict(error.response.headers)
            raise from_status(self.name, status, told(error.body, error.message), code=kind, headers=headers) from error
        except anthropic.APIConnectionError as error:
            raise from_transport(self.name, error) from error
        except transport_errors() as error:
            raise from_transport(self.name, error) from error


def _reply(answer: Mapping[str, Any], prompt: str) -> ModelReply:
    message = from_anthropic([_without_nulls(block) for block in answer["content"]])
    if BLOCKS in message:
        message[THOUGHT_AFTER] = prompt
    reason = answer.get("stop_reason") or "end_turn"
    if reason == "refusal":
        message["refusal"] = (answer.get("stop_details") or {}).get("explanation") or "the model refused"
    return ModelReply(
        message, _usage(answer.get("usage") or {}), _FINISH.get(reason, "stop"), answer.get("model"), answer.get("id")
    )


def _usage(reported: Mapping[str, Any]) -> Usage:
    """Anthropic counts cached input apart; we count all input, and say how much of it was cached."""
    read, written = reported.get("cache_read_input_tokens") or 0, reported.get("cache_creation_input_tokens") or 0
    return Usage(
        input_tokens=(reported.get("input_tokens") or 0) + read + written,
        output_tokens=reported.get("output_tokens") or 0,
        cached_tokens=read,
        cache_write_tokens=written,
    )


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": function["parameters"],
    }


def _choice(choice: str | Mapping[str, Any] | None) -> dict[str, Any]:
    if isinstance(choice, Mapping):
        return {"type": "tool", "name": choice["function"]["name"]}
    return {"type": _CHOICES.get(choice or "auto", "auto")}


def _without_nulls(block: Mapping[str, Any]) -> dict[str, Any]:
    """The block as it was sent: the client writes null for what was not there."""
    return {key: value for key, value in block.items() if value is not None}


def _kind(body: object) -> str | None:
    error = body.get("error") if isinstance(body, Mapping) else None
    kind = error.get("type") if isinstance(error, Mapping) else None
    return kind if isinstance(kind, str) else None
