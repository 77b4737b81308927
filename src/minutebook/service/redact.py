"""Secrets taken out of text that people or programs will read.

The second line of defence. The first is that what was said and what came in headers is never logged at all.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

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
