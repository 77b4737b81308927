"""JSON logs and the redaction of secrets.

Message contents and request headers are never logged. An error is logged with its type and stack frames, without its
message, which may quote the request. Redaction is the second line of defense: it removes what looks like a secret from
everything that is logged.
"""

import json
import logging
import math
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TextIO

from minutebook.conversation.minutes import HistoryPruned

REDACTED: Final = "[redacted]"

MAX_TEXT_CHARACTERS: Final = 2_000
"""Maximum length of a logged text. It is cut before it is searched for secrets, so that the search stays fast."""
_PREFIXES: Final = (
    *("sk", "pk", "rk"),  # OpenAI, Anthropic, OpenRouter, Stripe
    *("ghp", "gho", "ghu", "ghs", "ghr", "github_pat", "glpat"),
    *("xoxa", "xoxb", "xoxe", "xoxo", "xoxp", "xoxr", "xoxs", "xapp"),  # Slack
    *("hf", "gsk", "csk", "xai", "pplx", "r8", "nvapi", "fw", "tvly"),
    *("npm", "pypi", "dop_v1", "whsec", "lin_api", "shpat", "pat", "dapi"),
)
"""Prefixes of API keys, before a dash or an underscore."""
_SECRETS: Final = re.compile(
    rf"""
      -----BEGIN[ A-Z0-9]{{0,40}}PRIVATE[ ]KEY-----.*?(?:-----END[ A-Z0-9]{{0,40}}PRIVATE[ ]KEY-----|\Z)
    | \b(?:bearer|basic)\s{{1,8}}[A-Za-z0-9._~+/=-]{{6,}}
    | (?<=://)[^\s/@:]*:[^\s/@]+(?=@)                     # user:password in a URL
    | \bmb_[0-9a-f]{{12}}_[A-Za-z0-9_-]{{8,}}                # API keys of this service
    | \b(?:{"|".join(_PREFIXES)})[-_][A-Za-z0-9_-]{{16,}}
    | \bA(?:KIA|SIA|GPA|IDA|ROA)[A-Z0-9]{{12,}}             # AWS
    | \bAIza[A-Za-z0-9_-]{{30,}} | \bya29\.[A-Za-z0-9_-]{{16,}}   # Google
    | \bSG\.[A-Za-z0-9_-]{{10,}}+\.[A-Za-z0-9_-]{{10,}}       # SendGrid
    | \beyJ[A-Za-z0-9_-]{{6,}}+\.[A-Za-z0-9_-]{{6,}}(?:\.[A-Za-z0-9_-]*)?   # JSON web tokens
    | \b\d{{8,10}}:AA[A-Za-z0-9_-]{{30,}}                   # Telegram
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_NAMED_SECRETS: Final = re.compile(
    r"""(?P<name>(?:api[_-]?key|secret|passw(?:or)?d|access[_-]?token|authorization|cookie)["']?\s{0,8}[:=]\s{0,8}["']?)
        (?P<value>[^\s"',;&}]+)""",
    re.VERBOSE | re.IGNORECASE,
)
_SECRET_NAME: Final = re.compile(
    r"authorization|api[_-]?key|secret|password|passwd|cookie|credential|^token$", re.IGNORECASE
)


def without_secrets(text: str) -> str:
    """The text without anything that looks like a key, a token or a password, cut to `MAX_TEXT_CHARACTERS` characters."""
    if len(text) > MAX_TEXT_CHARACTERS:
        text = text[:MAX_TEXT_CHARACTERS] + "…"
    text = _SECRETS.sub(REDACTED, text)
    return _NAMED_SECRETS.sub(lambda match: match["name"] + REDACTED, text)


def needs_redaction(text: str) -> bool:
    """Whether the text contains a secret, or is longer than `MAX_TEXT_CHARACTERS`."""
    return without_secrets(text) != text


def value_without_secrets(value: Any, name: str = "") -> Any:
    """The value as JSON data. Text that looks like a secret and values whose name suggests a secret are redacted."""
    if _SECRET_NAME.search(name) and value is not None and not isinstance(value, (bool, int, float)):
        return REDACTED
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {without_secrets(str(key)): value_without_secrets(member, str(key)) for key, member in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [value_without_secrets(item) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return without_secrets(str(value))


REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("minutebook_request_id", default=None)
"""The id of the current request. Tasks started by the request inherit it."""
LOGGERS: Final = ("minutebook", "uvicorn", "uvicorn.error", "fastapi", "aiohttp", "httpx", "httpx2", "asyncio")
"""Loggers whose records are written. Not `uvicorn.access`: the service logs each request itself, with more fields and
without the client's address and the query string."""
MAX_FRAMES: Final = 30
"""Maximum stack frames per error, and maximum errors in a chain of causes."""
_STANDARD_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    *("message", "asctime", "taskName", "color_message"),
}
_HISTORY: Final = logging.getLogger("minutebook.history")


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: UTC time, level, logger, message, request id and the `extra` values."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(_message_of(record)),
        }
        request_id = REQUEST_ID.get()
        if request_id is not None:
            line["request_id"] = request_id
        line |= {name: value_without_secrets(value, name) for name, value in extras(record).items() if name not in line}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = error_frames(record.exc_info[1])
        return json.dumps(_finite(line), separators=(", ", ": "))


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """The values that were passed to a record as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}


def error_frames(error: BaseException) -> list[dict[str, Any]]:
    """The type and the stack frames of an error and of each of its causes, without messages."""
    chain: list[dict[str, Any]] = []
    current: BaseException | None = error
    while current is not None and len(chain) < MAX_FRAMES:
        frames = traceback.extract_tb(current.__traceback__)[-MAX_FRAMES:]
        chain.append(
            {
                "type": type(current).__name__,
                "at": [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames],
            }
        )
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return chain


def log_pruning(pruning: HistoryPruned) -> None:
    """Log how much of a history was pruned or, in shadow mode, would be."""
    if _HISTORY.isEnabledFor(logging.INFO):
        _HISTORY.info("pruned", extra={**asdict(pruning), "sent": pruning.sent})


def json_handler(stream: TextIO | None = None) -> logging.Handler:
    """A handler that writes redacted lines of JSON, to stderr by default."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    return handler


@contextmanager
def write_logs_to(stream: TextIO | None = None, *, level: str = "INFO") -> Iterator[logging.Handler]:
    """Write the service's logs to the stream in this block; afterwards the loggers are configured as before."""
    handler = json_handler(stream)
    previous_states = {name: _logger_state(name) for name in (*LOGGERS, "uvicorn.access")}
    try:
        for name in LOGGERS:
            logger = logging.getLogger(name)
            logger.handlers = [handler] if "." not in name else []
            logger.propagate = "." in name
            # HTTP client libraries log URLs at INFO and may log bodies at DEBUG.
            logger.setLevel(level if name.startswith(("minutebook", "uvicorn")) else "WARNING")
        access_logger = logging.getLogger("uvicorn.access")
        access_logger.handlers, access_logger.propagate = [], False
        yield handler
    finally:
        for name, state in previous_states.items():
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = state.handlers, state.propagate
            logger.setLevel(state.level)


class _LoggerState(NamedTuple):
    handlers: list[logging.Handler]
    propagate: bool
    level: int


def _logger_state(name: str) -> _LoggerState:
    logger = logging.getLogger(name)
    return _LoggerState(list(logger.handlers), logger.propagate, logger.level)


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):  # wrong arguments: logging would print a traceback that shows them
        return str(record.msg)


def _finite(value: Any) -> Any:
    """The value with NaN and infinity as strings, because JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(member) for key, member in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value
