"""What a client asks of `/v1/responses`, and the same in the words of chat completions.

Every parameter has an effect, goes to the provider, is told back as OpenAI does, or is refused: none is swallowed.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from minutebook.errors import RequestRefused

Id = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]
_PASSED: Final = (
    "temperature",
    "top_p",
    "parallel_tool_calls",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
)
"""What goes to the provider as it is."""


class Named(BaseModel):
    """Something by its id."""

    model_config = ConfigDict(extra="forbid")
    id: Id


class Reasoning(BaseModel):
    """How hard the model is to think. Chat completions give no summaries of it, so `auto` gives none."""

    model_config = ConfigDict(extra="forbid")
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    summary: Literal["auto"] | None = None


class TextOptions(BaseModel):
    """The form of the answer."""

    model_config = ConfigDict(extra="forbid")
    format: dict[str, Any] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ContextManagement(BaseModel):
    """Compact the conversation before the call once it has more tokens than this."""

    model_config = ConfigDict(extra="forbid")
    type: Literal["compaction"]
    compact_threshold: Count


class Input(BaseModel):
    """What all that is asked with items has in common."""

    model_config = ConfigDict(extra="forbid")
    model: str | None = Field(default=None, max_length=200)
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    previous_response_id: Id | None = None
    conversation: Id | Named | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None

    @property
    def conversation_id(self) -> str | None:
        return self.conversation.id if isinstance(self.conversation, Named) else self.conversation

    def require_one_place(self) -> None:
        """Raises `RequestRefused` if it is to go on in two places at once."""
        if self.conversation is not None and self.previous_response_id is not None:
            said = "Give either conversation or previous_response_id: they are two ways to say where to go on."
            raise RequestRefused(400, said, "mutually_exclusive_parameters", "previous_response_id")


class ResponseRequest(Input):
    """A request for a response."""

    stream: bool | None = None
    stream_options: dict[Literal["include_obfuscation"], Literal[False]] | None = None
    store: bool | None = None
    background: bool | None = None
    metadata: Metadata | None = None
    include: list[Literal["reasoning.encrypted_content"]] | None = None
    """A provider of chat completions has nothing encrypted, so there is never anything to include."""
    max_output_tokens: Count | None = None
    max_tool_calls: Count | None = None
    """Told back. It limits tools that a server runs by itself, and this one runs none."""
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

    def require_possible(self) -> None:
        """Raises `RequestRefused` for what contradicts itself or cannot be done here."""
        self.require_one_place()
        if self.background and self.store is False:
            said = "A background response is fetched later, so it has to be stored."
            raise RequestRefused(400, said, "background_needs_store", "background")
        if self.store is False and self.conversation is not None:
            said = "A conversation keeps what is said in it. Leave out store, or the conversation."
            raise RequestRefused(400, said, "conversation_needs_store", "store")
        if self.store is False and self.context_management:
            said = "Only what is stored can be compacted. Leave out store, or context_management."
            raise RequestRefused(400, said, "compaction_needs_store", "context_management")
        if self.context_management and self.truncation == "disabled":
            said = "context_management leaves something out, which truncation 'disabled' forbids."
            raise RequestRefused(400, said, "mutually_exclusive_parameters", "truncation")
        if self.expected_version is not None and self.conversation is None:
            said = "expected_version is a conversation's; name the conversation."
            raise RequestRefused(400, said, "missing_conversation_id", "expected_version")

    def echo(self, model: str) -> dict[str, Any]:
        """The request as it is told back with the response."""
        reasoning, text = self.reasoning or Reasoning(), self.text or TextOptions()
        told_text: dict[str, Any] = {"format": text.format or {"type": "text"}}
        if text.verbosity is not None:
            told_text["verbosity"] = text.verbosity
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
            "text": told_text,
            "tool_choice": self.tool_choice or "auto",
            "tools": self.tools or [],
            "top_logprobs": 0,
            "top_p": 1.0 if self.top_p is None else self.top_p,
            "truncation": self.truncation or "auto",
            "user": self.user,
        }

    def chat(self, model: str) -> dict[str, Any]:
        """The parameters of the chat completion that answers it.

        Raises:
            RequestRefused: chat completions have no word for something.
        """
        body: dict[str, Any] = {"model": model}
        for name in _PASSED:
            if getattr(self, name) is not None:
                body[name] = getattr(self, name)
        if self.max_output_tokens is not None:
            body["max_completion_tokens"] = self.max_output_tokens
        if self.reasoning is not None and self.reasoning.effort is not None:
            body["reasoning_effort"] = self.reasoning.effort
        if self.text is not None:
            body |= _form(self.text)
        if self.tools:
            body["tools"] = chat_tools(self.tools)
            if self.tool_choice is not None:
                body["tool_choice"] = _choice(self.tool_choice)
        elif self.tool_choice not in {None, "auto", "none"} if not isinstance(self.tool_choice, dict) else True:
            raise RequestRefused(400, "tool_choice chooses among tools; give some.", "missing_tools", "tool_choice")
        if not self.tools:
            body.pop("parallel_tool_calls", None)
        return body


def chat_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools as chat completions take them.

    Raises:
        RequestRefused: one is of a kind that the server would have to run itself.
    """
    found: list[dict[str, Any]] = []
    for index, tool in enumerate(tools):
        if tool.get("type") != "function":
            said = f"tools[{index}]: only tools of type 'function' can be given here; this server runs none itself."
            raise RequestRefused(400, said, "unsupported_tool", f"tools[{index}].type")
        if not isinstance(tool.get("name"), str):
            raise RequestRefused(400, f"tools[{index}].name is missing.", "invalid_tool", f"tools[{index}].name")
        known = ("name", "description", "parameters", "strict")
        found.append({"type": "function", "function": {key: tool[key] for key in known if tool.get(key) is not None}})
    return found


def _choice(choice: str | Mapping[str, Any]) -> Any:
    if isinstance(choice, str):
        if choice in {"none", "auto", "required"}:
            return choice
    elif choice.get("type") == "function" and isinstance(choice.get("name"), str):
        return {"type": "function", "function": {"name": choice["name"]}}
    elif choice.get("type") == "allowed_tools" and isinstance(choice.get("tools"), list):
        tools = [_choice(tool) for tool in choice["tools"] if isinstance(tool, Mapping)]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": tools}}
    said = "tool_choice must be none, auto, required, a function by name, or allowed_tools."
    raise RequestRefused(400, said, "invalid_tool_choice", "tool_choice")


def _form(text: TextOptions) -> dict[str, Any]:
    body: dict[str, Any] = {} if text.verbosity is None else {"verbosity": text.verbosity}
    given = text.format or {"type": "text"}
    kind = given.get("type")
    if kind == "json_object":
        body["response_format"] = {"type": "json_object"}
    elif kind == "json_schema" and isinstance(given.get("name"), str) and isinstance(given.get("schema"), Mapping):
        known = ("name", "description", "schema", "strict")
        schema = {key: given[key] for key in known if given.get(key) is not None}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif kind != "text":
        said = "text.format must be of type text, json_object or json_schema with a name and a schema."
        raise RequestRefused(400, said, "invalid_format", "text.format")
    return body
