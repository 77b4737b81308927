"""The keys of `llm_config.yaml`, their meanings and their defaults. An unknown key is an error."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, Strict, model_validator

from minutebook.agent.toolbox import BUILTINS
from minutebook.compaction.turns import TurnStrategy
from minutebook.conversation.config import RETENTION, ConversationConfig, PolicyConfig, Settings
from minutebook.errors import InvalidSetting, UnreadableInput
from minutebook.store.expiry import parse_age
from minutebook.tokens.models import ModelTable, load_models

_PYTHON: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Limit: TypeAlias = Annotated[int, Field(ge=1)]


class UpstreamConfig(Settings):
    """The provider behind the service. Without a URL, the demo model answers.

    Raises:
        InvalidSetting: the URL is invalid, the timeout is not positive, or a key is set without a URL.
    """

    url: str | None = None
    """Base URL of an OpenAI-compatible API, such as https://api.openai.com/v1."""
    key_env: str | None = None
    """The environment variable with the provider's API key. The key itself is never in the file."""
    model: str | None = None
    """The model of requests without one."""
    timeout_seconds: Seconds = 600.0
    pass_through_key: bool = False
    """Whether clients may send their own provider key in the header X-Upstream-Authorization."""

    @model_validator(mode="after")
    def _require_valid_url(self) -> Self:
        if self.url is not None and (
            urlsplit(self.url).scheme not in {"http", "https"} or not urlsplit(self.url).hostname
        ):
            raise InvalidSetting("url", self.url, "an http or https URL, such as https://api.openai.com/v1")
        for name in ("key_env", "pass_through_key"):
            if self.url is None and getattr(self, name):
                raise InvalidSetting(
                    name, getattr(self, name), "no value unless upstream.url is set: the demo model has no key"
                )
        return self


class ServerConfig(Settings):
    """The address of the service, and its connections to clients.

    Raises:
        InvalidSetting: an origin is not a scheme and a host.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    """0 for any free port."""
    heartbeat_seconds: Seconds = 15.0
    """How long a stream may be idle before a ping is sent."""
    missing_session_id: Literal["pass_through", "generate", "reject"] = "pass_through"
    """How to treat a chat completion request without a conversation id."""
    history_resend: Literal["auto", "all", "new"] = "auto"
    """What clients send with each request: their whole history, only new messages, or `auto`: by client and content."""
    on_disconnect: Literal["continue", "cancel"] = "continue"
    """Whether an answer continues or is cancelled when the client disconnects."""
    header_seconds: Seconds = 10.0
    """How long the headers of a request may take. After that the connection is closed."""
    keep_alive_seconds: Annotated[int, Field(ge=1)] = 5
    """How long an idle connection stays open."""
    wait_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 5.0
    """How long a message waits for the answer in progress of its conversation. After that it gets status 409."""
    cors_origins: Annotated[tuple[str, ...], Strict(False)] = ()
    """Origins of web pages that may call the service, such as https://chat.example.com. Changing it needs a restart."""
    record_cache_bytes: Annotated[int, Field(ge=0)] = 64 * 1024 * 1024
    """Memory for the records of conversations between their requests. A request reads only new messages; without a cached
    record it reads and counts the whole conversation. Changing it needs a restart."""
    lease_seconds: Seconds = 5.0
    """Duration of a conversation's lease. If a server dies, its conversations are locked for this time."""

    @model_validator(mode="after")
    def _require_valid_origins(self) -> Self:
        for origin in self.cors_origins:
            if not _ORIGIN.fullmatch(origin):
                raise InvalidSetting("cors_origins", origin, "origins such as https://chat.example.com, without a path")
        return self


class DatabaseConfig(Settings):
    """The database of the conversations.

    Raises:
        InvalidSetting: `expire_after` or `expire_requests_after` is not a time.
    """

    url: str | None = None
    """A URL or file name for `open_store`. Default: a SQLite file in the user's state folder."""
    read_url: str | None = None
    """A URL for reads that may be stale (lists, searches, exports), such as that of a PostgreSQL replica. Default: `url`."""
    encryption_key_file: str | None = None
    """A file with the master key of an encrypted database: 32 bytes, or their Base64 or hexadecimal text."""
    optional: bool = False
    """Whether the service answers without recording while the database is unavailable."""
    tenant: Annotated[str, Field(min_length=1)] = "default"
    """The tenant of requests without an API key."""
    expire_after: str | None = None
    """The time without a new message after which a conversation is removed: 30d, 12h, 90m. Default: never."""

    expire_requests_after: str | None = "30d"
    """The age at which the minutes of requests are removed: 30d, 12h, 90m; null for never. Totals of their usage stay."""

    @model_validator(mode="after")
    def _require_valid_age(self) -> Self:
        for name in ("expire_after", "expire_requests_after"):
            if (age := getattr(self, name)) is not None:
                parse_age(age, name=name)
        return self

    @property
    def age(self) -> timedelta | None:
        """`expire_after` as a time."""
        return None if self.expire_after is None else parse_age(self.expire_after)

    @property
    def requests_age(self) -> timedelta | None:
        """`expire_requests_after` as a time."""
        return None if self.expire_requests_after is None else parse_age(self.expire_requests_after)


class WorkerConfig(Settings):
    """Compaction by `minutebook worker`, outside of requests. PostgreSQL only.

    Raises:
        InvalidSetting: `keep_turns` exceeds `max_turns`.
    """

    enabled: bool = False
    """Whether appends queue conversations with more than `max_turns` turns for the workers."""
    max_turns: Limit = 10
    """Turns that are not summarized yet, above which a conversation is compacted."""
    keep_turns: Limit = 3
    """Newest turns that are kept whole."""
    summary_model: str | None = None
    """The model that writes summaries, at `upstream.url`. Default: none, summaries are extracts."""

    @model_validator(mode="after")
    def _require_fewer_kept_turns(self) -> Self:
        if self.keep_turns > self.max_turns:
            raise InvalidSetting("keep_turns", self.keep_turns, f"1 to max_turns, which is {self.max_turns}")
        return self

    @property
    def strategy(self) -> TurnStrategy:
        return TurnStrategy(max_turns=self.max_turns, keep_turns=self.keep_turns)


class LimitsConfig(Settings):
    """Maximums of requests and conversations. The maximum itself is allowed."""

    body_bytes: Limit = 10 * 1024 * 1024
    header_bytes: Limit = 64 * 1024
    """Names and values of the headers of a request."""
    connections: Limit = 10_000
    """Open connections of one server. Requests on more connections get status 503."""
    json_depth: Limit = 64
    json_values: Limit = 100_000
    """Items of lists and members of objects in a body. An empty list or object counts as one."""
    items_per_call: Limit = 20
    item_bytes: Limit = 1024 * 1024
    items_per_conversation: Limit = 10_000
    metadata_keys: Limit = 16
    metadata_key_characters: Limit = 64
    metadata_value_characters: Limit = 512
    requests_per_minute: Limit = 60
    """Per API key."""
    tokens_per_day: Annotated[int | None, Field(ge=1)] = None
    """Per API key. Default: no limit."""


class ToolConfig(Settings):
    """Tools of the model: one Python function, the tools of one MCP server, or built-in tools.

    Raises:
        InvalidSetting: not exactly one of `python`, `mcp` and `builtin` is set, or another key does not apply to it.
    """

    python: str | None = None
    """`module:name` of a function or a `Tool`."""
    mcp: str | None = None
    """The URL of a server, or the command that starts a server."""
    builtin: str | None = None
    """`clock`, or `files`: the files in the working folder of the service."""
    name: str | None = None
    """Name of the function's tool, instead of the function's name; for a server, its name in errors."""
    bearer_env: str | None = None
    """The environment variable with the bearer token for an MCP URL."""
    headers_env: Mapping[str, str] = Field(default_factory=dict)
    """Header for an MCP URL → the environment variable with its value."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Variable for an MCP command → the environment variable with its value."""

    @model_validator(mode="after")
    def _require_one_kind(self) -> Self:
        kinds = [name for name in ("python", "mcp", "builtin") if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise InvalidSetting("tool", " and ".join(kinds) or None, "exactly one of python, mcp and builtin")
        if self.python is not None and not _PYTHON.fullmatch(self.python):
            raise InvalidSetting("python", self.python, "module:function")
        if self.mcp is not None and not self.mcp.strip():
            raise InvalidSetting("mcp", self.mcp, "the URL of a server, or the command that starts a server")
        if self.builtin is not None and self.builtin not in BUILTINS:
            raise InvalidSetting("builtin", self.builtin, f"one of {', '.join(BUILTINS)}")
        if self.name is not None and (self.builtin or not _NAME.fullmatch(self.name)):
            raise InvalidSetting("name", self.name, "1 to 64 letters, digits, _ or -; none for built-in tools")
        for name, allowed in (("bearer_env", self.is_url), ("headers_env", self.is_url), ("env", self.is_command)):
            if getattr(self, name) and not allowed:
                kind = "command" if name == "env" else "URL"
                raise InvalidSetting(name, getattr(self, name), f"no value unless mcp is a {kind}")
        return self

    @property
    def is_url(self) -> bool:
        return self.mcp is not None and urlsplit(self.mcp).scheme in {"http", "https"}

    @property
    def is_command(self) -> bool:
        return self.mcp is not None and not self.is_url


class ServiceConfig(Settings):
    """The configuration of the service.

    Raises:
        InvalidSetting: a policy has the name `retention`, or `models_file` cannot be read.
    """

    conversation: ConversationConfig = ConversationConfig()
    policies: Mapping[str, PolicyConfig] = Field(default_factory=dict)
    """User-defined policies by name."""
    upstream: UpstreamConfig = UpstreamConfig()
    server: ServerConfig = ServerConfig()
    database: DatabaseConfig = DatabaseConfig()
    worker: WorkerConfig = WorkerConfig()
    limits: LimitsConfig = LimitsConfig()
    tools: Annotated[tuple[ToolConfig, ...], Strict(False)] = ()
    system_prompt: str | None = None
    """The first message of every thread."""
    models_file: str | None = None
    """A JSON file with limits and prices of your own models; see `minutebook.tokens.load_models`."""
    _models: ModelTable = PrivateAttr(default_factory=dict)

    @property
    def models(self) -> ModelTable:
        """The content of `models_file`, as it was when the configuration was loaded."""
        return self._models

    @model_validator(mode="after")
    def _load_models(self) -> Self:
        if self.models_file is not None:
            try:
                self._models = load_models(self.models_file)
            except (OSError, UnreadableInput) as error:
                raise InvalidSetting("models_file", self.models_file, f"a JSON file with models ({error})") from None
        return self

    @model_validator(mode="after")
    def _require_other_policy_names(self) -> Self:
        if RETENTION in self.policies:
            raise InvalidSetting("policies", RETENTION, "other names: conversation.retention configures this policy")
        return self
