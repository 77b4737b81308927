"""What goes back over the wire, before anybody touches a socket."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    """A status, headers, and a body in chunks."""

    status: int
    headers: Mapping[str, str]
    chunks: tuple[bytes, ...]
    streamed: bool = False
    cut_after: int | None = None
    """Close the connection after so many chunks."""
    before_seconds: float = 0.0
    between_seconds: float = 0.0


def json_reply(status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> Reply:
    content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
    return Reply(status, {"content-type": "application/json", **headers}, (content,))
