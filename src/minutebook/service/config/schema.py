"""What the service can be told: the keys of `llm_config.yaml`, their meanings and their defaults.

`loader` reads them. Every key has an effect, or is an error.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, Strict, model_validator

from minutebook.agent.toolbox import BUILTINS
from minutebook.conversation.config import DEFAULT_POLICY, ConversationConfig, PolicyConfig, Settings
from minutebook.errors import InvalidSetting

_PYTHON: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Limit: TypeAlias = Annotated[int, Field(ge=1)]


class UpstreamConfig(Settings):
    """The provider behind the service; none is the demo model.

    Raises:
        InvalidSetting: the URL is none, a time is not above 0, or there is a key for no provider.
    """

    url: str | None = None
    """The base of its OpenAI-compatible API, such as https://api.openai.com/v1."""
    key_env: str | None = None
    """The environment variable that has its key. The key itself is not written down."""
    model: str | None = None
    """The model for requests that name none."""
    timeout_seconds: Seconds = 600.0
    pass_through_key: bool = False
    """Whether a client's own key, in X-Upstream-Authorization, is handed on."""

    @model_validator(mode="after")
    def _has_a_provider(self) -> Self:
        if self.url is not None and (
            urlsplit(self.url).scheme not in {"http", "https"} or not urlsplit(self.url).hostname
        ):
            raise InvalidSetting("url", self.url, "an http or https URL, such as https://api.openai.com/v1")
        for name in ("key_env", "pass_through_key"):
            if self.url is None and getattr(self, name):
                raise InvalidSetting(name, getattr(self, name), "an url with it: the demo model takes no key")
        return self


class ServerConfig(Settings):
    """Where the service listens, and how it treats those who connect."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    """0 for any that is free."""
    heartbeat_seconds: Seconds = 15.0
    """A stream that says nothing for so long sends a sign of life."""
    missing_session_id: Literal["pass_through", "generate", "reject"] = "pass_through"
    """What becomes of a chat completion that names no conversation."""
    on_disconnect: Literal["continue", "cancel"] = "continue"
    """What becomes of an answer when whoever asked is gone."""
    lease_seconds: Seconds = 5.0
    """A conversation whose server died while it answered is free again after so long."""


class DatabaseConfig(Settings):
    """Where conversations are kept."""

    url: str | None = None
    """A URL as `open_store` takes it; none is a SQLite file in the folder for state."""
    optional: bool = False
    """Whether the service answers without a record while the database is away."""
    tenant: Annotated[str, Field(min_length=1)] = "default"
    """Whose conversations they are for whoever brings no key."""


class LimitsConfig(Settings):
    """What is too much. Whatever a limit is named for, that much is still allowed."""

    body_bytes: Limit = 10 * 1024 * 1024
    json_depth: Limit = 64
    items_per_call: Limit = 20
    item_bytes: Limit = 1024 * 1024
    items_per_conversation: Limit = 10_000
    metadata_keys: Limit = 16
    metadata_key_characters: Limit = 64
    metadata_value_characters: Limit = 512
    requests_per_minute: Limit = 60
    """For each key."""
    tokens_per_day: Annotated[int | None, Field(ge=1)] = None
    """For each key; none is no limit."""


class ToolConfig(Settings):
    """Tools that the model may call: a Python function, those of an MCP server, or built-in ones; one of the three.

    Raises:
        InvalidSetting: it is not one of the three, or a key means nothing to it.
    """

    python: str | None = None
    """`module:function`, or a `Tool` of that name."""
    mcp: str | None = None
    """The URL of a server, or the command that starts one."""
    builtin: str | None = None
    """clock, or files: what is in the folder that the service runs in."""
    name: str | None = None
    """What a function is called instead; for a server, what errors call it."""
    bearer_env: str | None = None
    """The environment variable with the token that a server at a URL asks for."""
    headers_env: Mapping[str, str] = Field(default_factory=dict)
    """Header for a server at a URL → the environment variable with its value."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Variable for a server that is started → the environment variable with its value."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        kinds = [name for name in ("python", "mcp", "builtin") if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise InvalidSetting("a tool", " and ".join(kinds) or "none of them", "one of python, mcp and builtin")
        if self.python is not None and not _PYTHON.fullmatch(self.python):
            raise InvalidSetting("python", self.python, "module:function")
        if self.mcp is not None and not self.mcp.strip():
            raise InvalidSetting("mcp", self.mcp, "the URL of a server, or the command that starts one")
        if self.builtin is not None and self.builtin not in BUILTINS:
            raise InvalidSetting("builtin", self.builtin, f"one of {', '.join(BUILTINS)}")
        if self.name is not None and (self.builtin or not _NAME.fullmatch(self.name)):
            raise InvalidSetting("name", self.name, "letters, digits, _ and -; built-in tools keep theirs")
        for name, allowed in (("bearer_env", self.is_url), ("headers_env", self.is_url), ("env", self.is_command)):
            if getattr(self, name) and not allowed:
                kind = "an MCP command" if name == "env" else "an MCP URL"
                raise InvalidSetting(name, getattr(self, name), f"it to {kind}")
        return self

    @property
    def is_url(self) -> bool:
        """Whether it is a server at a URL."""
        return self.mcp is not None and urlsplit(self.mcp).scheme in {"http", "https"}

    @property
    def is_command(self) -> bool:
        """Whether it is a server that is started."""
        return self.mcp is not None and not self.is_url


class ServiceConfig(Settings):
    """All that the service can be told.

    Raises:
        InvalidSetting: a policy of one's own has the name of the default one.
    """

    conversation: ConversationConfig = ConversationConfig()
    policies: Mapping[str, PolicyConfig] = Field(default_factory=dict)
    """Policies of one's own, by name."""
    upstream: UpstreamConfig = UpstreamConfig()
    server: ServerConfig = ServerConfig()
    database: DatabaseConfig = DatabaseConfig()
    limits: LimitsConfig = LimitsConfig()
    tools: Annotated[tuple[ToolConfig, ...], Strict(False)] = ()
    system_prompt: str | None = None
    """What a conversation begins with where the client says nothing of the kind."""

    @model_validator(mode="after")
    def _keeps_the_default_policy(self) -> Self:
        if DEFAULT_POLICY in self.policies:
            raise InvalidSetting("policies", DEFAULT_POLICY, "it another name: conversation.retention sets this one")
        return self
