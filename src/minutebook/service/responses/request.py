"""Bodies of requests to `/v1/responses`, and the chat completion parameters that they become.

Every parameter has an effect, is forwarded to the provider, is returned with the response as OpenAI does, or is
rejected. None is ignored.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from minutebook.errors import RequestRefused

Id = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
_FORWARDED_FIELDS: Final = (
    "temperature",
    "top_p",
    "parallel_tool_calls",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
)
"""Fields that the provider gets unchanged."""


class ConversationReference(BaseModel):
    """The id of a conversation as an object."""

    model_config = ConfigDict(extra="forbid")
    id: Id


class Reasoning(BaseModel):
    """The reasoning effort. Chat completions have no reasoning summaries, so `summary: auto` returns none."""

    model_config = ConfigDict(extra="forbid")
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    summary: Literal["auto"] | None = None


class TextOptions(BaseModel):
    """The format and the verbosity of the answer."""

    model_config = ConfigDict(extra="forbid")
    format: dict[str, Any] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ContextManagement(BaseModel):
    """Compact the conversation before the call if it has more tokens than `compact_threshold`."""

    model_config = ConfigDict(extra="forbid")
    type: Literal["compaction"]
    compact_threshold: Count


class InputRequest(BaseModel):
    """The common fields of requests with input items."""

    model_config = ConfigDict(extra="forbid")
    model: str | None = Field(default=None, max_length=200)
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    previous_response_id: Id | None = None
    conversation: Id | ConversationReference | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None

    @property
    def conversation_id(self) -> str | None:
        conversation = self.conversation
        return conversation.id if isinstance(conversation, ConversationReference) else conversation

    def require_one_continuation(self) -> None:
        """Raises `RequestRefused` if the request continues both a conversation and a response."""
        if self.conversation is not None and self.previous_response_id is not None:
            problem = "`conversation` and `previous_response_id` are mutually exclusive."
            raise RequestRefused(400, problem, "mutually_exclusive_parameters", "previous_response_id")


class ResponseRequest(InputRequest):
    """A request for a response."""

    stream: bool | None = None
    stream_options: dict[Literal["include_obfuscation"], Literal[False]] | None = None
    store: bool | None = None
    background: bool | None = None
    metadata: dict[str, str] | None = None
    include: list[Literal["reasoning.encrypted_content"]] | None = None
    """Accepted without effect: chat completions have no encrypted content."""
    max_output_tokens: Count | None = None
    max_tool_calls: Count | None = None
    """Returned with the response, without effect: it limits built-in tools, and this server has none."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_logprobs: Literal[0] | None = None
    user: str | None = Field(default=None, max_length=512)
    safety_identifier: str | None = Field(default=None, max_length=512)
    prompt_cache_key: str | None = Field(default=None, max_length=512)
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    service_tier: str | None = Field(default=None, max_length=64)
    context_management: list[ContextManagement] | None = Field(default=None, max_length=1)
    expected_version: int | None = Field(default=None, ge=0, le=1 << 53, strict=True)

    def require_consistency(self) -> None:
        """Raises `RequestRefused` if parameters contradict each other."""
        self.require_one_continuation()
        if self.background and self.store is False:
            problem = "`background: true` cannot be combined with `store: false` or `X-History: off`: the response is fetched later."
            raise RequestRefused(400, problem, "background_needs_store", "background")
        if self.store is False and self.conversation is not None:
            problem = "`store: false` and `X-History: off` cannot be combined with `conversation`."
            raise RequestRefused(400, problem, "conversation_needs_store", "store")
        if self.store is False and self.context_management:
            problem = "`store: false` and `X-History: off` cannot be combined with `context_management`."
            raise RequestRefused(400, problem, "compaction_needs_store", "context_management")
        if self.context_management and self.truncation == "disabled":
            problem = "`context_management` cannot be combined with `truncation: disabled`."
            raise RequestRefused(400, problem, "mutually_exclusive_parameters", "truncation")
        if self.expected_version is not None and self.conversation is None:
            problem = "`expected_version` requires `conversation`."
            raise RequestRefused(400, problem, "missing_conversation_id", "expected_version")

    def returned_parameters(self, model: str) -> dict[str, Any]:
        """The parameters that are returned with the response, with their defaults."""
        reasoning, text = self.reasoning or Reasoning(), self.text or TextOptions()
        text_options: dict[str, Any] = {"format": text.format or {"type": "text"}}
        if text.verbosity is not None:
            text_options["verbosity"] = text.verbosity
        return {
            "background": bool(self.background),
            "conversation": None if self.conversation_id is None else {"id": self.conversation_id},
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": self.max_tool_calls,
            "metadata": self.metadata or {},
            "model": model,
            "parallel_tool_calls": True if self.parallel_tool_calls is None else self.parallel_tool_calls,
            "previous_response_id": self.previous_response_id,
            "prompt_cache_key": self.prompt_cache_key,
            "prompt_cache_retention": self.prompt_cache_retention,
            "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
            "safety_identifier": self.safety_identifier,
            "service_tier": self.service_tier or "auto",
            "store": self.store is not False,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "text": text_options,
            "tool_choice": self.tool_choice or "auto",
            "tools": self.tools or [],
            "top_logprobs": 0,
            "top_p": 1.0 if self.top_p is None else self.top_p,
            "truncation": self.truncation or "auto",
            "user": self.user,
        }

    def chat_parameters(self, model: str) -> dict[str, Any]:
        """The parameters of the chat completion that answers the request, without messages.

        Raises:
            RequestRefused: chat completions do not support a tool, a tool choice or a format.
        """
        body: dict[str, Any] = {"model": model}
        for name in _FORWARDED_FIELDS:
            if getattr(self, name) is not None:
                body[name] = getattr(self, name)
        if self.max_output_tokens is not None:
            body["max_completion_tokens"] = self.max_output_tokens
        if self.reasoning is not None and self.reasoning.effort is not None:
            body["reasoning_effort"] = self.reasoning.effort
        if self.text is not None:
            body |= _response_format(self.text)
        if self.tools:
            body["tools"] = chat_tools(self.tools)
            if self.tool_choice is not None:
                body["tool_choice"] = _chat_tool_choice(self.tool_choice)
        elif self.tool_choice not in {None, "auto", "none"} if not isinstance(self.tool_choice, dict) else True:
            raise RequestRefused(400, "`tool_choice` requires `tools`.", "missing_tools", "tool_choice")
        if not self.tools:
            body.pop("parallel_tool_calls", None)
        return body


def chat_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools in the format of chat completions.

    Raises:
        RequestRefused: a tool is not a function; the server would have to run it itself.
    """
    functions: list[dict[str, Any]] = []
    for index, tool in enumerate(tools):
        if tool.get("type") != "function":
            problem = f"tools[{index}].type must be 'function': this server has no built-in tools."
            raise RequestRefused(400, problem, "unsupported_tool", f"tools[{index}].type")
        if not isinstance(tool.get("name"), str):
            raise RequestRefused(400, f"tools[{index}].name is missing.", "invalid_tool", f"tools[{index}].name")
        keys = ("name", "description", "parameters", "strict")
        functions.append(
            {"type": "function", "function": {key: tool[key] for key in keys if tool.get(key) is not None}}
        )
    return functions


def _chat_tool_choice(choice: str | Mapping[str, Any]) -> Any:
    if isinstance(choice, str):
        if choice in {"none", "auto", "required"}:
            return choice
    elif choice.get("type") == "function" and isinstance(choice.get("name"), str):
        return {"type": "function", "function": {"name": choice["name"]}}
    elif choice.get("type") == "allowed_tools" and isinstance(choice.get("tools"), list):
        tools = [_chat_tool_choice(tool) for tool in choice["tools"] if isinstance(tool, Mapping)]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": tools}}
    problem = "tool_choice must be none, auto, required, a function with its name, or allowed_tools."
    raise RequestRefused(400, problem, "invalid_tool_choice", "tool_choice")


def _response_format(text: TextOptions) -> dict[str, Any]:
    body: dict[str, Any] = {} if text.verbosity is None else {"verbosity": text.verbosity}
    text_format = text.format or {"type": "text"}
    kind = text_format.get("type")
    if kind == "json_object":
        body["response_format"] = {"type": "json_object"}
    elif kind == "json_schema" and _is_named_schema(text_format):
        keys = ("name", "description", "schema", "strict")
        schema = {key: text_format[key] for key in keys if text_format.get(key) is not None}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif kind != "text":
        problem = "text.format.type must be text, json_object, or json_schema with a name and a schema."
        raise RequestRefused(400, problem, "invalid_format", "text.format")
    return body


def _is_named_schema(text_format: Mapping[str, Any]) -> bool:
    return isinstance(text_format.get("name"), str) and isinstance(text_format.get("schema"), Mapping)
