"""The adapter for Anthropic's Messages API."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack

from minutebook.agent.messages import ModelReply, ModelRequest, OnDelta, TextDelta, ThinkingDelta, usage_from
from minutebook.agent.providers.client import ClientAdapter, ClientOptions
from minutebook.record.message import Provider
from minutebook.record.shapes import encodable_copy
from minutebook.wire.anthropic import PROMPT_DIGEST_KEY, from_anthropic, has_thinking, to_anthropic

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_FINISH_REASONS: Final = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}
_TOOL_CHOICE_TYPES: Final = {"auto": "auto", "required": "any", "none": "none"}


class AnthropicAdapter(ClientAdapter):
    """Evaluates prompts with the official client, which it creates unless `client` is given.

    `options` are added to every request unchanged (`temperature`, `thinking`, …). Requests use the provider's prompt
    cache unless `cache=False`. Signed thinking is sent back byte for byte as long as everything before it is unchanged;
    otherwise it is left out.

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
        auth_token: str | None = None,
        **client_options: Unpack[ClientOptions],
    ) -> None:
        """`auth_token` is sent instead of an API key."""
        super().__init__(model, client=client, native_output=native_output, **client_options)
        self._client_arguments["auth_token"] = auth_token
        self._max_output_tokens, self._cache = max_output_tokens, cache

    async def ask(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelReply:
        arguments, prompt_digest = self._arguments(request)
        with self.client_errors():
            messages = self.client().messages
            if on_delta is None:
                return _reply((await messages.create(**arguments)).to_dict(), prompt_digest)
            async with messages.stream(**arguments) as stream:
                async for event in stream:
                    if event.type == "text":
                        on_delta(TextDelta(event.text))
                    elif event.type == "thinking":
                        on_delta(ThinkingDelta(event.thinking))
                return _reply((await stream.get_final_message()).to_dict(), prompt_digest)

    def _arguments(self, request: ModelRequest) -> tuple[dict[str, Any], str]:
        """The client's keyword arguments, and the digest of the prompt that signed thinking depends on.

        Messages are sent in `extra_body`, which the client does not transform: its transformation takes most of a call's CPU.
        """
        tools = [_tool(spec["function"]) for spec in request.tools]
        converted = to_anthropic(request.messages, tools=tools)
        options = {"messages": encodable_copy(converted.messages), **self._options}
        arguments: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self._max_output_tokens,
            "messages": [],
            "extra_body": options,
        }
        if converted.system:
            arguments["system"] = encodable_copy(converted.system)
        if tools:
            arguments |= {"tools": tools, "tool_choice": _tool_choice(request.tool_choice)}
        if self._cache:
            arguments["cache_control"] = {"type": "ephemeral"}
        if converted.thinking_dropped and "thinking" in options:
            options["thinking"] = {"type": "disabled"}
        if request.output is not None:
            schema = {"type": "json_schema", "schema": dict(request.output.schema)}
            options["output_config"] = {**options.get("output_config", {}), "format": schema}
        return arguments, converted.prompt_digest


def _reply(response: Mapping[str, Any], prompt_digest: str) -> ModelReply:
    message = from_anthropic([_without_nulls(block) for block in response["content"]])
    if has_thinking(message):
        message[PROMPT_DIGEST_KEY] = prompt_digest
    reason = response.get("stop_reason") or "end_turn"
    if reason == "refusal":
        message["refusal"] = (response.get("stop_details") or {}).get("explanation") or "the model refused"
    return ModelReply(
        message,
        usage_from(response.get("usage")),
        _FINISH_REASONS.get(reason, "stop"),
        response.get("model"),
        response.get("id"),
    )


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": function["parameters"],
    }


def _tool_choice(choice: str | Mapping[str, Any] | None) -> dict[str, Any]:
    if isinstance(choice, Mapping):
        return {"type": "tool", "name": choice["function"]["name"]}
    return {"type": _TOOL_CHOICE_TYPES.get(choice or "auto", "auto")}


def _without_nulls(block: Mapping[str, Any]) -> dict[str, Any]:
    """The block as the provider sent it: the client adds a null for every absent field."""
    return {key: value for key, value in block.items() if value is not None}
