"""Encodes entries, folds and documents as bytes for a store, and list positions as cursors.

A stored entry has a few plain fields and two pieces of bytes: the text of the message, and the rest of it as JSON. The
text is separate because it is large, searched, and often repeated: two tool results with the same text differ only in
their call ids. Pieces are UTF-8 in which lone surrogates are encoded too (`surrogatepass`), so any text can be stored.
"""

import json
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import UUID

from minutebook.errors import InvalidMessage, InvalidSetting
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import JSON_SCALARS, Message, MessageRole, frozen_copy, plain_copy
from minutebook.wire.chat import entry_to_provider_message, provider_message_to_entry

MAX_INLINE_BYTES: Final = 8 * 1024
"""Larger pieces (in bytes) are stored once per tenant, by the hash of their content."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
MAX_UNCOMPRESSED_BYTES: Final = 384
"""Pieces up to this size (in bytes) are not compressed: compression would save little and make reading slower."""
_UNCOMPRESSED, _DEFLATED, _DEFLATED_DOCUMENT = b"\0", b"\1", b"\3"
"""The first byte of a stored piece. PostgreSQL also uses 2, for a piece that is stored in another table."""
_DOCUMENT_WORDS: Final = (
    b'{"status":"in_progress","failed":"completed","version":"requests":[req_"stop":"tools":[],"partial":null,"error":'
    b'"summary_model":"truncate","sliding_window","turn_window","retention","hybrid","strategy":"manager":[{"name":'
    b'{"start":"stop":"status":"dropped","reason":"older than the last messages"},"left_out":[{"folds":["fold-'
    b'"input":[responses","evaluation":"echo":{},"created_at":"completed_at":"pieces":[threads"at":"conversation":"'
    b'{"fingerprint":"{"run":"req_{"number":{"run":"resp_run_chatcmpl_","model":"gpt-4o-mini","policy":{"name":'
    b'"conversation","mode":"on","strategy":null,"manager":{"name":"passthrough"},"token_budget","mode":"on","strategy":'
    b'null,"manager":{"name":"token_budget","max_tokens":111616,"preset":"economy","preset":"balanced","target":null,'
    b'"trigger":1.0,"keep_results":1,"reserve":0,"preserve_first_request":true,"names":null,"counter":null},'
    b'"max_tokens":null,"summary_model":null},"mode":"on","folds":[],"parts":[[0,"left_out":[],"tokens_before":'
    b'"tokens_after":"sha256":"","length":"bypass":null,"asked_at":"2026-11-18T00:00:00.000000+00:00","surface":'
    b'"chat.completions","reconcile":"partial","reconcile":"appended","finish":"tool_calls","finish":"stop","usage":'
    b'{"prompt_tokens":"completion_tokens":"total_tokens":"prompt_tokens_details":{"cached_tokens":0},'
    b'"completion_tokens_details":{"reasoning_tokens":0}},"head":{"id":"chatcmpl-"created":"model":"gpt-4o"},"answer":'
)
"""Texts that are frequent in documents, the most frequent last. Stored documents can only be read with these bytes."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_ASCII_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_TEXT_PLACEHOLDER: Final = 0
"""Replaces the content in the JSON of a message whose text is a separate piece. A real content is never a number."""


class Packed(NamedTuple):
    """An encoded entry. It is a tuple because that is the fastest to create, and every entry needs one."""

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
    """Return the encoded entry, and the entry as a provider message. `index` is its index in the append, for the error.

    Raises:
        InvalidMessage: it has a value that JSON cannot express.
    """
    _require_fields(entry, index)
    has_only_content = not entry.extras and entry.tool_calls is None and entry.tool_name is None
    if has_only_content and entry.role in _TEXT_ROLES and isinstance(entry.content, str):
        return _pack_text(entry, entry.content)
    for extras in (entry.extras, *(call.extras for call in entry.tool_calls or ())):
        _require_json_structure(extras, index)
    message = entry_to_provider_message(entry)
    try:
        text, rest = _pieces(message, index, "strict")
    except UnicodeEncodeError:
        message = json.loads(_json_text(message, index, ensure_ascii=True))
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


def _pack_text(entry: ConversationEntry, content: str) -> tuple[Packed, Message]:
    """Encode an entry with only a role and a text. Most entries are like that, and this is much faster than `pack`."""
    try:
        text = content.encode()
    except UnicodeEncodeError:
        content = json.loads(json.dumps(content))  # joins surrogate pairs to one character
        text = content.encode("utf-8", "surrogatepass")
    evaluation_id, created_at = entry.evaluation_id.bytes, microseconds(entry.created_at)
    packed = Packed(entry.role, evaluation_id, entry.sequence, created_at, entry.provider, entry.model, text, None)
    return packed, {"role": entry.role.value, "content": content}


def unpack(packed: Packed) -> ConversationEntry:
    """Decode an entry that `pack` encoded."""
    role, evaluation, sequence, created_at_microseconds, provider, model, text_piece, rest = packed
    text = None if text_piece is None else text_piece.decode("utf-8", "surrogatepass")
    evaluation_id, created_at = _evaluation_id(evaluation), moment(created_at_microseconds)
    if rest is None:
        return ConversationEntry(role, text, evaluation_id, sequence, created_at, None, None, None, provider, model)
    message = json.loads(rest.decode("utf-8", "surrogatepass"))
    if text is not None:
        message["content"] = text
    return provider_message_to_entry(
        message, evaluation_id=evaluation_id, sequence=sequence, created_at=created_at, provider=provider, model=model
    )


@lru_cache(maxsize=4_096)  # the entries of a turn share one, and recent turns are loaded often
def _evaluation_id(evaluation: bytes) -> UUID:
    return UUID(bytes=evaluation)


def body_digest(packed: Iterable[Packed]) -> bytes:
    """A hash of the messages of an append, to detect an idempotency key that is reused for other messages."""
    digest = sha256()
    for entry in packed:
        for piece in (entry.role.value.encode(), entry.text, entry.rest):
            digest.update(b"-" if piece is None else b"%d:" % len(piece))
            digest.update(piece or b"")
    return digest.digest()[:16]


def fold_to_bytes(fold: Fold) -> bytes:
    """Encode the reason and the messages of a fold.

    Raises:
        InvalidSetting: they have a value that JSON cannot express.
    """
    try:
        return json_to_bytes([fold.reason, *fold.shown])
    except InvalidMessage as error:
        raise InvalidSetting(f"shown of fold {fold.id!r}", fold.shown, f"JSON values; it {error.problem}") from error


def json_to_bytes(value: Any) -> bytes:
    """Encode a value as JSON in UTF-8. Surrogate pairs are joined to one character.

    Raises:
        InvalidMessage: it has a value that JSON cannot express.
    """
    _require_json_structure(value, None)
    try:
        return _json_text(value, None, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        joined_value = json.loads(_json_text(value, None, ensure_ascii=True))
        return _json_text(joined_value, None, ensure_ascii=False).encode("utf-8", "surrogatepass")


def json_from_bytes(data: bytes) -> Any:
    """Decode a value that `json_to_bytes` encoded, as plain dicts and lists."""
    return json.loads(data.decode("utf-8", "surrogatepass"))


def fold_from_bytes(fold_id: str, start: int, stop: int, data: bytes) -> Fold:
    """Decode a fold that `fold_to_bytes` encoded. Its messages are read-only."""
    reason, *shown = json_from_bytes(data)
    return Fold(fold_id, start, stop, tuple(frozen_copy(shown)), reason)


def compress(piece: bytes) -> bytes:
    """Compress a piece if that makes it smaller. The first byte says whether it did."""
    if len(piece) > MAX_UNCOMPRESSED_BYTES:
        # A small window and little memory: the compressor is created in a fraction of the time.
        deflate = zlib.compressobj(6, zlib.DEFLATED, -13, 5)
        compressed = deflate.compress(piece) + deflate.flush()
        if len(compressed) < len(piece):
            return _DEFLATED + compressed
    return _UNCOMPRESSED + piece


def compress_document(body: bytes) -> bytes:
    """Compress the body of a document. Bodies are short and alike, so what they have in common is not stored."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -13, 5, zdict=_DOCUMENT_WORDS)
    compressed = deflate.compress(body) + deflate.flush()
    return _DEFLATED_DOCUMENT + compressed if len(compressed) < len(body) else _UNCOMPRESSED + body


def decompress(stored: bytes) -> bytes:
    """The piece that `compress` or `compress_document` compressed."""
    kind = stored[:1]
    if kind == _DEFLATED_DOCUMENT:
        return zlib.decompressobj(-15, zdict=_DOCUMENT_WORDS).decompress(stored[1:])
    return zlib.decompress(stored[1:], -15) if kind == _DEFLATED else stored[1:]


def microseconds(time: datetime) -> int:
    """The microseconds from 1970 to a time, exactly."""
    return (time - _EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    """The time that is this many microseconds after 1970."""
    return _EPOCH + value * _MICROSECOND


def _pieces(message: Mapping[str, Any], index: int | None, surrogates: str) -> tuple[bytes | None, bytes | None]:
    """The text and the rest of a message. `surrogates` is the error handler of `str.encode`."""
    content = message.get("content")
    if not isinstance(content, str):
        return None, _json_text(message, index, ensure_ascii=False).encode("utf-8", surrogates)
    text = content.encode("utf-8", surrogates)
    if list(message) == ["role", "content"] and message["role"] in _TEXT_ROLES:
        return text, None
    return text, _json_text({**message, "content": _TEXT_PLACEHOLDER}, index, ensure_ascii=False).encode(
        "utf-8", surrogates
    )


_TEXT_ROLES: Final = frozenset({"system", "user", "assistant"})
"""Roles whose message may have only a role and a text."""


def _json_text(value: Any, index: int | None, *, ensure_ascii: bool) -> str:
    """A value as JSON. With `ensure_ascii`, parsing the text joins surrogate pairs to one character."""
    try:
        return (_ASCII_ENCODER if ensure_ascii else _ENCODER).encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage("", f"cannot be stored as JSON: {error}", index) from error


def _require_fields(entry: ConversationEntry, index: int | None) -> None:
    """Check the fields that are stored as columns."""
    if entry.provider is not None and not is_storable(entry.provider):
        raise InvalidMessage("provider", _NOT_STORABLE, index)
    if entry.model is not None and not is_storable(entry.model):
        raise InvalidMessage("model", _NOT_STORABLE, index)
    if entry.sequence >= 1 << 63:
        raise InvalidMessage("sequence", f"is {entry.sequence}, more than the maximum 2^63 - 1", index)


_NOT_STORABLE: Final = "contains NUL or a lone surrogate, which not every database can store"


def is_storable(text: str) -> bool:
    """Whether every database can store this text: it has no NUL and no lone surrogate."""
    if text.isascii():
        return "\0" not in text
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


MAX_NESTING: Final = 200
"""Maximum levels of lists and objects in each other. With more, reading could exceed Python's limit of recursion."""


def _require_json_structure(value: Any, index: int | None, levels: int = MAX_NESTING) -> None:
    if type(value) in JSON_SCALARS:
        return
    if not levels:
        raise InvalidMessage("", f"cannot be stored as JSON: it has more than {MAX_NESTING} levels of nesting", index)
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidMessage(
                    "", f"cannot be stored as JSON: a key is of type {type(key).__name__}, not str", index
                )
            _require_json_structure(inner, index, levels - 1)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _require_json_structure(inner, index, levels - 1)


def fold_to_json(fold: Fold) -> dict[str, Any]:
    """A fold as plain JSON data, for an export."""
    shown = [plain_copy(message) for message in fold.shown]
    return {"id": fold.id, "start": fold.start, "stop": fold.stop, "shown": shown, "reason": fold.reason}


def cursor_of(*sort_key: str | int) -> str:
    """A cursor for the item with this sort key."""
    return urlsafe_b64encode(json.dumps(sort_key, separators=(",", ":")).encode()).decode().rstrip("=")


def cursor_values(cursor: str | None, *types: type) -> tuple[Any, ...] | None:
    """The sort key in a cursor, whose values have these types; None without a cursor.

    Raises:
        InvalidSetting: it is not a cursor of `cursor_of` with values of these types.
    """
    if cursor is None:
        return None
    try:
        sort_key = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError):
        sort_key = None
    is_valid = isinstance(sort_key, list) and [type(value) for value in sort_key] == list(types)
    if not is_valid or not all(map(_is_storable_value, sort_key)):
        raise InvalidSetting("cursor", cursor, "the cursor of the previous page, unchanged")
    return tuple(sort_key)


def _is_storable_value(value: str | int) -> bool:
    return is_storable(value) if isinstance(value, str) else abs(value) < 1 << 63
