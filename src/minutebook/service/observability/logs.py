"""Logs as lines of JSON, one object each, without secrets.

What was said in a conversation is never logged. So an error is told by its type and the places it went through, not by
its message, which may quote what came in.

Secrets taken out of text that people or programs will read.

The second line of defence. The first is that what was said and what came in headers is never logged at all.
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
from typing import Any, Final, TextIO

from minutebook.conversation.minutes import HistoryPruned

REDACTED: Final = "[redacted]"

LONGEST: Final = 2_000
"""A longer text is cut before it is looked through: nobody can keep a server busy with what it logs."""
_PREFIXES: Final = (
    *("sk", "pk", "rk"),  # OpenAI, Anthropic, OpenRouter, Stripe
    *("ghp", "gho", "ghu", "ghs", "ghr", "github_pat", "glpat"),
    *("xoxa", "xoxb", "xoxe", "xoxo", "xoxp", "xoxr", "xoxs", "xapp"),  # Slack
    *("hf", "gsk", "csk", "xai", "pplx", "r8", "nvapi", "fw", "tvly"),
    *("npm", "pypi", "dop_v1", "whsec", "lin_api", "shpat", "pat", "dapi"),
)
"""What keys begin with, before a dash or an underscore."""
_SECRETS: Final = re.compile(
    rf"""
      -----BEGIN[ A-Z0-9]{{0,40}}PRIVATE[ ]KEY-----.*?(?:-----END[ A-Z0-9]{{0,40}}PRIVATE[ ]KEY-----|\Z)
    | \b(?:bearer|basic)\s{{1,8}}[A-Za-z0-9._~+/=-]{{6,}}
    | (?<=://)[^\s/@:]*:[^\s/@]+(?=@)                     # user:password in a URL
    | \bmb_[0-9a-f]{{12}}_[A-Za-z0-9_-]{{8,}}                # our own
    | \b(?:{"|".join(_PREFIXES)})[-_][A-Za-z0-9_-]{{16,}}
    | \bA(?:KIA|SIA|GPA|IDA|ROA)[A-Z0-9]{{12,}}             # AWS
    | \bAIza[A-Za-z0-9_-]{{30,}} | \bya29\.[A-Za-z0-9_-]{{16,}}   # Google
    | \bSG\.[A-Za-z0-9_-]{{10,}}+\.[A-Za-z0-9_-]{{10,}}       # SendGrid
    | \beyJ[A-Za-z0-9_-]{{6,}}+\.[A-Za-z0-9_-]{{6,}}(?:\.[A-Za-z0-9_-]*)?   # JSON web tokens
    | \b\d{{8,10}}:AA[A-Za-z0-9_-]{{30,}}                   # Telegram
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_NAMED: Final = re.compile(
    r"""(?P<name>(?:api[_-]?key|secret|passw(?:or)?d|access[_-]?token|authorization|cookie)["']?\s{0,8}[:=]\s{0,8}["']?)
        (?P<value>[^\s"',;&}]+)""",
    re.VERBOSE | re.IGNORECASE,
)
_PRIVATE: Final = re.compile(
    r"authorization|api[_-]?key|secret|password|passwd|cookie|credential|^token$", re.IGNORECASE
)


def redacted(text: str) -> str:
    """The text without anything that looks like a key, a token or a password; a very long one is cut off."""
    if len(text) > LONGEST:
        text = text[:LONGEST] + "…"
    text = _SECRETS.sub(REDACTED, text)
    return _NAMED.sub(lambda match: match["name"] + REDACTED, text)


def is_clean(text: str) -> bool:
    """Whether there is nothing to take out."""
    return redacted(text) == text


def cleaned(value: Any, name: str = "") -> Any:
    """A JSON value without secrets: those that look like one, and those under a name that says so."""
    if _PRIVATE.search(name) and value is not None and not isinstance(value, (bool, int, float)):
        return REDACTED
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {redacted(str(key)): cleaned(each, str(key)) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [cleaned(each) for each in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return redacted(str(value))


REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("minutebook_request_id", default=None)
"""The request that is being answered; a run that it began has it, too."""
LOGGERS: Final = ("minutebook", "uvicorn", "uvicorn.error", "fastapi", "aiohttp", "httpx", "httpx2", "asyncio")
"""Whose lines are written. uvicorn's own line for each request is not: ours says more, and no address or query."""
DEEPEST: Final = 30
"""The most places of an error that are told."""
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_HISTORY: Final = logging.getLogger("minutebook.history")


class Redactor(logging.Filter):
    """Takes secrets out of every record, whatever formats it afterwards; `JsonLines` does it by itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redacted(_said(record)), None
        for name, value in extras(record).items():
            setattr(record, name, cleaned(value, name))
        if record.exc_info and record.exc_info[1] is not None:
            record.error = places(record.exc_info[1])  # it survives formatting twice, which exc_info does not
        record.exc_info = record.exc_text = record.stack_info = None
        return True


class JsonLines(logging.Formatter):
    """One JSON object a line: time in UTC, level, logger, message, request, and what was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(_said(record)),
        }
        request_id = REQUEST_ID.get()
        if request_id is not None:
            line["request_id"] = request_id
        line |= {name: cleaned(value, name) for name, value in extras(record).items() if name not in line}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = places(record.exc_info[1])
        return json.dumps(_finite(line), separators=(", ", ": "))


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """What was given to a record as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


def places(error: BaseException) -> list[dict[str, Any]]:
    """An error and what led to it, each by its type and the places it went through. Messages are left out."""
    told: list[dict[str, Any]] = []
    current: BaseException | None = error
    while current is not None and len(told) < DEEPEST:
        frames = traceback.extract_tb(current.__traceback__)[-DEEPEST:]
        told.append(
            {
                "type": type(current).__name__,
                "at": [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames],
            }
        )
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return told


def log_pruned(fact: HistoryPruned) -> None:
    """One line for every decision about what a model is sent."""
    if _HISTORY.isEnabledFor(logging.INFO):
        _HISTORY.info("pruned", extra={**asdict(fact), "sent": fact.sent})


def handler_for(stream: TextIO | None = None) -> logging.Handler:
    """A handler whose lines are JSON and hold no secrets."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    return handler


@contextmanager
def logging_to(stream: TextIO | None = None, *, level: str = "INFO") -> Iterator[logging.Handler]:
    """Send what the service has to say there, and leave everything as it was afterwards."""
    handler = handler_for(stream)
    before = {name: _state(name) for name in (*LOGGERS, "uvicorn.access")}
    try:
        for name in LOGGERS:
            logger = logging.getLogger(name)
            logger.handlers = [handler] if "." not in name else []
            logger.propagate = "." in name
            # A client's library tells URLs at INFO, and may tell bodies at DEBUG.
            logger.setLevel(level if name.startswith(("minutebook", "uvicorn")) else "WARNING")
        access = logging.getLogger("uvicorn.access")
        access.handlers, access.propagate = [], False
        yield handler
    finally:
        for name, (handlers, propagate, old) in before.items():
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(old)


def _state(name: str) -> tuple[list[logging.Handler], bool, int]:
    logger = logging.getLogger(name)
    return list(logger.handlers), logger.propagate, logger.level


def _said(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):  # a wrong number of arguments must not end in a traceback that shows them
        return str(record.msg)


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list) else value
