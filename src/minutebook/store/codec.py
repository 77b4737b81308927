"""Entries and folds as bytes, small and exact: what a store puts into a row.

A stored entry is a handful of plain fields and two pieces, the text and the rest of the message. The text stands
alone because it is what is large, what is searched, and what repeats: a tool result read twice is one text under
two call ids. Pieces are UTF-8, with lone surrogates in the same scheme (`surrogatepass`), so no database need know
about them; control characters are escaped by JSON or stand in bytes, so NUL is no question either.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final
from uuid import UUID
from zlib import DEFLATED, compressobj, decompress

from minutebook.errors import InvalidMessage, InvalidSetting
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.frozen import frozen, thawed
from minutebook.record.message import Message, MessageRole
from minutebook.wire.chat import entry_to_provider_message, provider_message_to_entry

LARGE: Final = 8 * 1024
"""Pieces above this size are stored once, by the hash of their content."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
SHORT: Final = 64
"""Pieces up to this size gain nothing from being deflated."""
_TEXT_APART: Final = 0
"""What stands for the content in the rest of a message whose text is a piece of its own; no content is a number."""


@dataclass(frozen=True, slots=True)
class Packed:
    """An entry as a store keeps it."""

    role: MessageRole
    evaluation_id: bytes
    sequence: int
    created_at: int
    """Microseconds since 1970, UTC."""
    provider: str | None
    model: str | None
    text: bytes | None
    """The content, if it is text."""
    rest: bytes | None
    """The message without that text, as JSON; None if there is nothing but role and text."""


def pack(entry: ConversationEntry, index: int | None = None) -> tuple[Packed, Message]:
    """An entry as a store keeps it, and its message. `index` is where it stands, for the error.

    Raises:
        InvalidMessage: it holds what JSON cannot say.
    """
    _require_fields(entry, index)
    for extras in (entry.extras, *(call.extras for call in entry.tool_calls or ())):
        _require_text_keys(extras, index)
    message = entry_to_provider_message(entry)
    try:
        text, rest = _pieces(message, index, "strict")
    except UnicodeEncodeError:
        message = json.loads(_dumped(message, index, ensure_ascii=True))
        text, rest = _pieces(message, index, "surrogatepass")
    packed = Packed(
        role=entry.role,
        evaluation_id=entry.evaluation_id.bytes,
        sequence=entry.sequence,
        created_at=microseconds(entry.created_at),
        provider=entry.provider,
        model=entry.model,
        text=text,
        rest=rest,
    )
    return packed, message


def unpack(packed: Packed) -> ConversationEntry:
    """The entry that `pack` packed."""
    text = None if packed.text is None else packed.text.decode("utf-8", "surrogatepass")
    known: dict[str, Any] = {
        "evaluation_id": UUID(bytes=packed.evaluation_id),
        "sequence": packed.sequence,
        "created_at": moment(packed.created_at),
        "provider": packed.provider,
        "model": packed.model,
    }
    if packed.rest is None:
        return ConversationEntry(role=packed.role, content=text, **known)
    message = json.loads(packed.rest.decode("utf-8", "surrogatepass"))
    if text is not None:
        message["content"] = text
    return provider_message_to_entry(message, **known)


def body_digest(packed: Iterable[Packed]) -> bytes:
    """What tells the messages of one append from those of another, for its idempotency key."""
    digest = sha256()
    for one in packed:
        for piece in (one.role.value.encode(), one.text, one.rest):
            digest.update(b"-" if piece is None else b"%d:" % len(piece))
            digest.update(piece or b"")
    return digest.digest()[:16]


def fold_to_bytes(fold: Fold) -> bytes:
    """What a fold shows and why, as a store keeps it.

    Raises:
        InvalidSetting: it holds what JSON cannot say.
    """
    try:
        for message in fold.shown:
            _require_text_keys(message, None)
        said = json.loads(_dumped([fold.reason, *fold.shown], None, ensure_ascii=True))
        return _dumped(said, None, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except InvalidMessage as problem:
        raise InvalidSetting(f"what fold {fold.id!r} shows", fold.shown, f"JSON: it {problem.problem}") from problem


def fold_from_bytes(name: str, start: int, stop: int, data: bytes) -> Fold:
    """The fold of which `fold_to_bytes` kept this; what it shows cannot be changed in place."""
    reason, *shown = json.loads(data.decode("utf-8", "surrogatepass"))
    return Fold(name, start, stop, tuple(frozen(shown)), reason)


def squeezed(piece: bytes) -> bytes:
    """A piece as it is put away: deflated, where that makes it smaller. The first byte says which."""
    if len(piece) > SHORT:
        window, memory = (-12, 4) if len(piece) <= LARGE else (-15, 8)  # small tables are quick to set up
        deflate = compressobj(6, DEFLATED, window, memory)
        small = deflate.compress(piece) + deflate.flush()
        if len(small) < len(piece):
            return b"\1" + small
    return b"\0" + piece


def unsqueezed(kept: bytes) -> bytes:
    """The piece that `squeezed` put away."""
    return decompress(kept[1:], -15) if kept[0] else kept[1:]


def microseconds(when: datetime) -> int:
    """A moment as the microseconds since 1970, exactly."""
    return (when - _EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    """The moment that `microseconds` counted to."""
    return _EPOCH + value * _MICROSECOND


def _pieces(message: Mapping[str, Any], index: int | None, surrogates: str) -> tuple[bytes | None, bytes | None]:
    content = message.get("content")
    if not isinstance(content, str):
        return None, _dumped(message, index, ensure_ascii=False).encode("utf-8", surrogates)
    text = content.encode("utf-8", surrogates)
    if list(message) == ["role", "content"] and message["role"] in _PLAIN:
        return text, None
    return text, _dumped({**message, "content": _TEXT_APART}, index, ensure_ascii=False).encode("utf-8", surrogates)


_PLAIN: Final = frozenset({"system", "user", "assistant"})
"""Roles whose message may be nothing but a role and a text."""


def _dumped(value: Any, index: int | None, *, ensure_ascii: bool) -> str:
    """A value as JSON. In ASCII, surrogates that make a pair are read back as the one character they spell."""
    try:
        return json.dumps(value, ensure_ascii=ensure_ascii, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidMessage("it", f"cannot be stored as JSON: {problem}", index) from problem


def _require_fields(entry: ConversationEntry, index: int | None) -> None:
    """What becomes a column of its own must be what every database has columns for."""
    for name in ("provider", "model"):
        value = getattr(entry, name)
        if value is not None and not is_plain(value):
            raise InvalidMessage(name, "is a name; it has neither NUL nor lone surrogates", index)
    if entry.sequence >= 1 << 63:
        raise InvalidMessage("sequence", f"is {entry.sequence}; the largest is 2^63 - 1", index)


def is_plain(text: str) -> bool:
    """Whether every database takes this text as it is."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def _require_text_keys(value: Any, index: int | None) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidMessage("it", f"cannot be stored as JSON: the key {key!r} is not text", index)
            _require_text_keys(inner, index)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _require_text_keys(inner, index)


def thawed_fold(fold: Fold) -> dict[str, Any]:
    """A fold as JSON data, for an export."""
    shown = [thawed(message) for message in fold.shown]
    return {"id": fold.id, "start": fold.start, "stop": fold.stop, "shown": shown, "reason": fold.reason}
