"""Tokens of images, audio, video and documents, by the provider's published prices, not by their base64.

A docstring that starts with "Published" states the provider's price. Where a provider publishes none, or the size is not in
the message (a URL, a file id, a compressed stream), an assumed value is used, which rather gives too many tokens.

The width and height of an image are read from the first bytes of its base64, without decoding the rest.
"""

from binascii import Error, a2b_base64
from collections.abc import Callable, Iterator, Mapping
from math import ceil
from typing import Any, NamedTuple

JPEG_SEARCH_BYTES = 65_536
"""Bytes in which the size of a JPEG is searched. The size follows the metadata, which may contain a long thumbnail."""


def first_bytes(data: str, byte_count: int) -> bytes:
    """The first bytes of base64 data; empty if it is not base64."""
    start = data[: byte_count * 4 // 3 + 64].replace("\n", "").replace("\r", "")
    try:
        return a2b_base64(start[: len(start) // 4 * 4])[:byte_count]
    except (Error, ValueError):
        return b""


def image_size(data: str) -> tuple[int, int] | None:
    """Width and height of a PNG, GIF, WebP or JPEG from its base64; None for other data."""
    start = first_bytes(data, 32)
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        size = _big_endian(start[16:20]), _big_endian(start[20:24])
    elif start.startswith(b"GIF8"):
        size = _little_endian(start[6:8]), _little_endian(start[8:10])
    elif start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        size = _webp_size(start)
    elif start.startswith(b"\xff\xd8"):
        size = _jpeg_size(first_bytes(data, JPEG_SEARCH_BYTES))
    else:
        return None
    return size if min(size) > 0 else None


def _webp_size(start: bytes) -> tuple[int, int]:
    if start[12:16] == b"VP8X":
        return 1 + _little_endian(start[24:27]), 1 + _little_endian(start[27:30])
    if start[12:16] == b"VP8L":
        bits = _little_endian(start[21:25])
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return _little_endian(start[26:28]) & 0x3FFF, _little_endian(start[28:30]) & 0x3FFF


def _jpeg_size(data: bytes) -> tuple[int, int]:
    offset = 2
    while offset + 9 <= len(data) and data[offset] == 0xFF:
        marker = data[offset + 1]
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:  # a frame header, not a table
            return _big_endian(data[offset + 7 : offset + 9]), _big_endian(data[offset + 5 : offset + 7])
        if marker == 0xFF:  # padding before a marker
            offset += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD9:  # markers without a length
            offset += 2
        else:
            offset += 2 + _big_endian(data[offset + 2 : offset + 4])
    return 0, 0


def _big_endian(number_bytes: bytes) -> int:
    return int.from_bytes(number_bytes, "big")


def _little_endian(number_bytes: bytes) -> int:
    return int.from_bytes(number_bytes, "little")


IMAGE = frozenset({"image", "image_url", "input_image"})
AUDIO = frozenset({"audio", "audio_url", "input_audio"})
VIDEO = frozenset({"video", "video_url", "input_video"})
DOCUMENT = frozenset({"document", "document_url", "file", "input_file", "pdf"})
OTHER = frozenset({"media", "inline_data"})
MEDIA = IMAGE | AUDIO | VIDEO | DOCUMENT | OTHER
"""Types of content parts that are media. For a part of a type in `OTHER`, its media type decides what it is."""

ASSUMED_SIZE = (1024, 1024)
ASSUMED_SECONDS = 60.0
ASSUMED_PAGES = 5
ASSUMED_BYTES_PER_PAGE = 50_000
ASSUMED_AUDIO_BYTES_PER_SECOND = 16_000
"""MP3 at 128 kbit/s. A WAV file has its rate in its header."""
ASSUMED_VIDEO_BYTES_PER_SECOND = 250_000

BASE64_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\r\n"

Size = tuple[int, int]


class MediaPrices(NamedTuple):
    """One provider's price list, in tokens: per image, per second of audio or video, per page of a document."""

    name: str
    image: Callable[[Size | None, str], int]
    """Tokens by width and height (None if unknown) and OpenAI's `detail`."""
    audio_second: float
    video_second: float
    page: int


def _openai_tiles(size: Size | None, detail: str, base: int, tile: int) -> int:
    """Published: `base` plus `tile` for each 512-pixel tile.

    The image is first scaled down to fit 2048 x 2048, then to 768 on its shorter side. That `auto` means `high` is an
    assumption.
    """
    if detail == "low":
        return base
    width, height = _shrink(size or ASSUMED_SIZE, longest=2048)
    width, height = _scale((width, height), min(1.0, 768 / min(width, height)))
    return base + tile * ceil(width / 512) * ceil(height / 512)


def openai_image(size: Size | None, detail: str) -> int:
    return _openai_tiles(size, detail, base=85, tile=170)


def openai_mini_image(size: Size | None, detail: str) -> int:
    """Published for gpt-4o-mini, which needs 33 times as many (cheaper) tokens for images."""
    return _openai_tiles(size, detail, base=2833, tile=5667)


def anthropic_image(size: Size | None, _detail: str) -> int:
    """Published: width x height / 750 after scaling the long edge down to 1568; at most about 1,600."""
    if size is None:
        return 1600
    width, height = _shrink(size, longest=1568)
    return min(1600, ceil(width * height / 750))


def gemini_image(size: Size | None, _detail: str) -> int:
    """Published: 258 for every tile of 768 x 768. A smaller image costs one tile."""
    width, height = size or ASSUMED_SIZE
    return 258 * ceil(width / 768) * ceil(height / 768)


OPENAI = MediaPrices("openai", openai_image, audio_second=10, video_second=263, page=1500)
"""The price of audio is published. A page is sent as an image (765 tokens) and as text (about as much, an assumption).
OpenAI accepts no video, so Gemini's price is used."""

OPENAI_MINI = OPENAI._replace(name="openai-mini", image=openai_mini_image, page=26_000)

ANTHROPIC = MediaPrices("anthropic", anthropic_image, audio_second=10, video_second=263, page=3000)
"""The published price of a page is 1,500 to 3,000. Anthropic accepts no audio or video, so other providers' prices are
used."""

GEMINI = MediaPrices("gemini", gemini_image, audio_second=32, video_second=263, page=258)
"""Published: all of these."""


def media_tokens(part: Mapping[str, Any], prices: MediaPrices) -> int | None:
    """Tokens of one content part, or None if it is not media."""
    part_type = part.get("type")
    if part_type not in MEDIA:
        return None
    payload = next((text for text in strings(part) if is_blob(text, min_length=256)), None)
    payload = payload or _find_string(part, "data", "file_data") or None
    media_type, data = _media_type_and_data(payload) if payload is not None else ("", None)
    media_type = media_type or _find_string(part, "media_type", "mime_type", "format")
    family = media_type.partition("/")[0]
    if part_type in IMAGE or family == "image":
        return prices.image(image_size(data) if data else None, _find_string(part, "detail"))
    if part_type in AUDIO or family == "audio":
        return ceil(prices.audio_second * _audio_seconds(data))
    if part_type in VIDEO or family == "video":
        return ceil(prices.video_second * _seconds(data, ASSUMED_VIDEO_BYTES_PER_SECOND))
    pages = ASSUMED_PAGES if data is None else ceil(_byte_count(data) / ASSUMED_BYTES_PER_PAGE)
    return prices.page * max(1, pages)


def is_blob(text: str, min_length: int = 1024) -> bool:
    """Whether a string is encoded data: a data URL, or base64 of at least `min_length` characters."""
    if text.startswith("data:"):
        return ";base64," in text[:256]
    return len(text) >= min_length and not text[:1024].strip(BASE64_CHARACTERS)


def strings(value: Any, depth: int = 0) -> Iterator[str]:
    """The strings in a JSON value, at most four levels deep. Providers nest media no deeper."""
    if isinstance(value, str):
        yield value
    elif depth < 4:
        items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        for inner in items:
            yield from strings(inner, depth + 1)


def _find_string(part: Mapping[str, Any], *keys: str) -> str:
    """The first string under one of these keys, in the part or in a mapping directly in it; else an empty string."""
    for mapping in (part, *part.values()):
        if isinstance(mapping, Mapping):
            for key in keys:
                if isinstance(value := mapping.get(key), str):
                    return value
    return ""


def _media_type_and_data(payload: str) -> tuple[str, str]:
    """The media type and the base64 of a data URL. Plain base64 has no media type."""
    comma = payload.find(",")
    if not payload.startswith("data:") or comma < 0:
        return "", payload
    return payload[5:comma].partition(";")[0], payload[comma + 1 :]


def _byte_count(data: str) -> int:
    return len(data) * 3 // 4


def _seconds(data: str | None, bytes_per_second: int) -> float:
    return ASSUMED_SECONDS if data is None else max(1.0, _byte_count(data) / bytes_per_second)


def _audio_seconds(data: str | None) -> float:
    start = first_bytes(data, 32) if data else b""
    is_wav = start[:4] == b"RIFF" and start[8:12] == b"WAVE"
    bytes_per_second = _little_endian(start[28:32]) if is_wav else 0
    return _seconds(data, bytes_per_second or ASSUMED_AUDIO_BYTES_PER_SECOND)


def _shrink(size: Size, longest: int) -> Size:
    return _scale(size, min(1.0, longest / max(size)))


def _scale(size: Size, factor: float) -> Size:
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
