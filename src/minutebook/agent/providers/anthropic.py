"""Models behind Anthropic's messages."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack

from minutebook.agent.messages import ModelReply, ModelRequest, OnDelta, TextDelta, ThinkingDelta, Usage
from minutebook.agent.providers.client import ClientAdapter, ClientOptions
from minutebook.record.message import Provider
from minutebook.wire.anthropic import BLOCKS, THOUGHT_AFTER, from_anthropic, to_anthropic

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_FINISH: Final = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}
_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}


class AnthropicAdapter(ClientAdapter):
    """Evaluates prompts through the official client, which it makes itself unless it is given one.

    `options` go into every request as they are (`temperature`, `thinking`, …). Prompts are marked for the provider's
    cache unless `cache=False`. Signed thinking goes back byte for byte while all that stood before it is unchanged, and
    not at all afterwards.

    Raises:
        MissingExtra: the package anthropic is not installed.
    """

    provider: ClassVar[Provider] = "anthropic"
    name: ClassVar[str] = "anthropic"
    client_class: ClassVar[str] = "AsyncAnthropic"
    error_code_key: ClassVar[str] = "type"
    stream_statuses: ClassVar[Mapping[str, int]] = {
        "overloaded_error": 529,
        "rate_limit_error": 429,
        "timeout_error": 504,
        "request_too_large": 413,
    }

    def __init__(
        self,
        model: str,
        *,
        client: "AsyncAnthropic | None" = None,
        max_output_tokens: int = 8192,
        cache: bool = True,
        native_output: bool = False,
        **shared: Unpack[ClientOptions],
    ) -> None:
        super().__init__(model, client=client, native_output=native_output, **shared)
        self._max_output_tokens, self._cache = max_output_tokens, cache

    async def ask(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelReply:
        arguments, prompt = self._arguments(request)
        with self.client_errors():
            messages = self.client().messages
            if on_delta is None:
                return _reply((await messages.create(**arguments)).to_dict(), prompt)
            async with messages.stream(**arguments) as stream:
                async for event in stream:
                    if event.type == "text":
                        on_delta(TextDelta(event.text))
                    elif event.type == "thinking":
                        on_delta(ThinkingDelta(event.thinking))
                return _reply((await stream.get_final_message()).to_dict(), prompt)

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
