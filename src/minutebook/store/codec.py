"""Entries and folds as bytes, small and exact: what a store puts into a row.

A stored entry is a handful of plain fields and two pieces, the text and the rest of the message. The text stands
alone because it is what is large, what is searched, and what repeats: a tool result read twice is one text under
two call ids. Pieces are UTF-8, with lone surrogates in the same scheme (`surrogatepass`), so no database need know
about them; control characters are escaped by JSON or stand in bytes, so NUL is no question either.

Where a page ended, as a word that the caller hands back.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import UUID
from zlib import DEFLATED, compressobj, decompress

from minutebook.errors import InvalidMessage, InvalidSetting
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import ATOMS, Message, MessageRole, frozen, thawed
from minutebook.wire.chat import entry_to_provider_message, provider_message_to_entry

LARGE: Final = 8 * 1024
"""Pieces above this size are stored once, by the hash of their content."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
SHORT: Final = 384
"""Pieces up to this size are not deflated: it saves little, and reading them takes longer."""
_PLAINLY, _DEFLATED = b"\0", b"\1"
"""The first byte of a piece says how it was put away. 2 is PostgreSQL's, for what is kept elsewhere."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_ASCII: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_TEXT_APART: Final = 0
"""What stands for the content in the rest of a message whose text is a piece of its own; no content is a number."""


class Packed(NamedTuple):
    """An entry as a store keeps it. A tuple: one is made for every entry, and of all that can be made it takes least time."""

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
    is_plain_one = not entry.extras and entry.role in _PLAIN and entry.tool_calls is None and entry.tool_name is None
    if is_plain_one and isinstance(entry.content, str):
        return _pack_plain(entry, entry.content)
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


def _pack_plain(entry: ConversationEntry, content: str) -> tuple[Packed, Message]:
    """What nearly every entry is: a role and a text, in a fraction of the time that the others take."""
    try:
        text = content.encode()
    except UnicodeEncodeError:
        content = json.loads(json.dumps(content))  # surrogates that make a pair become the character they spell
        text = content.encode("utf-8", "surrogatepass")
    when, names = microseconds(entry.created_at), (entry.provider, entry.model)
    packed = Packed(entry.role, entry.evaluation_id.bytes, entry.sequence, when, *names, text, None)
    return packed, {"role": entry.role.value, "content": content}


def unpack(packed: Packed) -> ConversationEntry:
    """The entry that `pack` packed."""
    role, evaluation, sequence, created_at, provider, model, text_piece, rest = packed
    text = None if text_piece is None else text_piece.decode("utf-8", "surrogatepass")
    evaluation_id, when = _evaluation_id(evaluation), moment(created_at)
    if rest is None:
        return ConversationEntry(role, text, evaluation_id, sequence, when, None, None, None, provider, model)
    message = json.loads(rest.decode("utf-8", "surrogatepass"))
    if text is not None:
        message["content"] = text
    return provider_message_to_entry(
        message, evaluation_id=evaluation_id, sequence=sequence, created_at=when, provider=provider, model=model
    )


@lru_cache(maxsize=4_096)  # the entries of a turn have the same, and the last turns are loaded again and again
def _evaluation_id(evaluation: bytes) -> UUID:
    return UUID(bytes=evaluation)


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
        return json_to_bytes([fold.reason, *fold.shown])
    except InvalidMessage as problem:
        raise InvalidSetting(f"what fold {fold.id!r} shows", fold.shown, f"JSON: it {problem.problem}") from problem


def json_to_bytes(value: Any) -> bytes:
    """A value as JSON in UTF-8; surrogates that make a pair are the character they spell.

    Raises:
        InvalidMessage: it holds what JSON cannot say.
    """
    _require_text_keys(value, None)
    try:
        return _dumped(value, None, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        said = json.loads(_dumped(value, None, ensure_ascii=True))
        return _dumped(said, None, ensure_ascii=False).encode("utf-8", "surrogatepass")


def json_from_bytes(data: bytes) -> Any:
    """What `json_to_bytes` wrote, in plain dicts and lists."""
    return json.loads(data.decode("utf-8", "surrogatepass"))


def fold_from_bytes(name: str, start: int, stop: int, data: bytes) -> Fold:
    """The fold of which `fold_to_bytes` kept this; what it shows cannot be changed in place."""
    reason, *shown = json_from_bytes(data)
    return Fold(name, start, stop, tuple(frozen(shown)), reason)


def squeezed(piece: bytes) -> bytes:
    """A piece as it is put away: deflated, where that makes it smaller. The first byte says which."""
    if len(piece) > SHORT:
        deflate = compressobj(6, DEFLATED, -13, 5)  # a small window and little memory: made in a fraction of the time
        small = deflate.compress(piece) + deflate.flush()
        if len(small) < len(piece):
            return _DEFLATED + small
    return _PLAINLY + piece


def unsqueezed(kept: bytes) -> bytes:
    """The piece that `squeezed` put away."""
    return decompress(kept[1:], -15) if kept[:1] == _DEFLATED else kept[1:]


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
        return (_ASCII if ensure_ascii else _ENCODER).encode(value)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidMessage("it", f"cannot be stored as JSON: {problem}", index) from problem


def _require_fields(entry: ConversationEntry, index: int | None) -> None:
    """What becomes a column of its own must be what every database has columns for."""
    if entry.provider is not None and not is_plain(entry.provider):
        raise InvalidMessage("provider", _NO_NAME, index)
    if entry.model is not None and not is_plain(entry.model):
        raise InvalidMessage("model", _NO_NAME, index)
    if entry.sequence >= 1 << 63:
        raise InvalidMessage("sequence", f"is {entry.sequence}; the largest is 2^63 - 1", index)


_NO_NAME: Final = "is a name; it has neither NUL nor lone surrogates"


def is_plain(text: str) -> bool:
    """Whether every database takes this text as it is."""
    if text.isascii():
        return "\0" not in text
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def _require_text_keys(value: Any, index: int | None) -> None:
    if type(value) in ATOMS:
        return
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


def cursor_of(*place: str | int) -> str:
    """A place in a sorted list, as one word."""
    return urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode().rstrip("=")


def place_of(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """The place that `cursor_of` wrote down; None for the beginning.

    Raises:
        InvalidSetting: it did not write this.
    """
    if cursor is None:
        return None
    try:
        place = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError):
        place = None
    if not isinstance(place, list) or [type(value) for value in place] != list(kinds) or not all(map(_usable, place)):
        raise InvalidSetting("cursor", cursor, "the cursor of the page before, as it came")
    return tuple(place)


def _usable(value: str | int) -> bool:
    return is_plain(value) if isinstance(value, str) else abs(value) < 1 << 63
