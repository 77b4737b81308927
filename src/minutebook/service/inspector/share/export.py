"""One HTML file with a conversation at a request, to share. It has no scripts and loads nothing."""

import base64
import hashlib
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Final

from markupsafe import Markup

from minutebook.errors import InvalidSetting
from minutebook.history.names import full_text
from minutebook.record.message import Message
from minutebook.service.inspector.charts.timeline import NARROW, timeline_svg
from minutebook.service.inspector.content import ContentBlock, blocks_of
from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.service.inspector.rows import row_blocks
from minutebook.service.inspector.share.redaction import KINDS, Redaction, redacted
from minutebook.service.inspector.web import FOLDER, templates

MAX_MESSAGES: Final = 4_000
"""Older messages are left out of the file."""
MAX_CHARACTERS: Final = 8_000_000
"""Of all texts together. Longer texts are cut, the longest first."""


def export_html(conversation: InspectedConversation, number: int | None = None, redact: Collection[str] = ()) -> str:
    """The file. It shows the request with this number, by default the newest one.

    `redact` has `tools` to replace the names of tools, `texts` to leave out all texts, or both.

    Raises:
        InvalidSetting: `redact` has another value.
    """
    for kind in redact:
        if kind not in KINDS:
            raise InvalidSetting("redact", kind, "tools or texts")
    data = redacted(conversation, Redaction("tools" in redact, "texts" in redact)) if redact else conversation
    current, count = data.request(number), len(data.messages)
    start = max(0, count - MAX_MESSAGES)
    limit = _text_limit([len(full_text(message)) for message in data.messages[start:]])

    def content(position: int) -> Sequence[ContentBlock]:
        return list(blocks_of(_cut(data.messages[position], limit)))

    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return templates().get_template("export.html").render(
        data=data,
        current=current,
        blocks=row_blocks(data, current, start, count),
        content=content,
        start=start,
        limit=limit,
        redact=[kind for kind in KINDS if kind in redact],
        timeline=timeline_svg(data),
        narrow_timeline=timeline_svg(data, width=NARROW),
        style=Markup(style),  # noqa: S704 - our own file
        csp=f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'",
    )  # fmt: skip


@cache
def _style() -> str:
    return "\n".join((FOLDER / "static" / name).read_text(encoding="utf-8") for name in ("style.css", "pages.css"))


def _text_limit(lengths: Sequence[int]) -> int | None:
    """The length to which texts are cut so that all fit; None if all are short enough."""
    if sum(lengths) <= MAX_CHARACTERS:
        return None
    low, high = 0, max(lengths)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(length, middle) for length in lengths) <= MAX_CHARACTERS else (low, middle - 1)  # fmt: skip
    return low


def _cut(message: Message, limit: int | None) -> Message:
    text: Any = message.get("content")
    if limit is None or len(full_text(message)) <= limit:
        return message
    shown = text if isinstance(text, str) else full_text(message)
    note = f"\n… {max(0, len(shown) - limit):,} more characters are not in this file"
    return {"role": message.get("role"), "content": shown[:limit] + note}
