"""What images, audio, video and documents cost: by the provider's published price, never by their base64.

Published figures are marked so; where a provider publishes none, or the size cannot be known from the message (a URL,
a file id, a compressed stream), an assumption stands in, named as one. Assumptions lean towards too many tokens.

An image's width and height from the first bytes of its base64, without decoding the rest.
"""

from binascii import Error, a2b_base64
from collections.abc import Callable, Iterator, Mapping
from math import ceil
from typing import Any, NamedTuple

JPEG_SEARCH_BYTES = 65_536
"""A JPEG's size comes after its metadata; a thumbnail there may be long."""


def head(data: str, size: int) -> bytes:
    """The first bytes behind a base64 text; none when it is not base64."""
    start = data[: size * 4 // 3 + 64].replace("\n", "").replace("\r", "")
    try:
        return a2b_base64(start[: len(start) // 4 * 4])[:size]
    except (Error, ValueError):
        return b""


def image_size(data: str) -> tuple[int, int] | None:
    """Width and height of a PNG, GIF, WebP or JPEG; None for anything else."""
    start = head(data, 32)
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        size = _big(start[16:20]), _big(start[20:24])
    elif start.startswith(b"GIF8"):
        size = _little(start[6:8]), _little(start[8:10])
    elif start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        size = _webp(start)
    elif start.startswith(b"\xff\xd8"):
        size = _jpeg(head(data, JPEG_SEARCH_BYTES))
    else:
        return None
    return size if min(size) > 0 else None


def _webp(start: bytes) -> tuple[int, int]:
    if start[12:16] == b"VP8X":
        return 1 + _little(start[24:27]), 1 + _little(start[27:30])
    if start[12:16] == b"VP8L":
        bits = _little(start[21:25])
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return _little(start[26:28]) & 0x3FFF, _little(start[28:30]) & 0x3FFF


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:  # a frame header, not a table
            return _big(data[at + 7 : at + 9]), _big(data[at + 5 : at + 7])
        if marker == 0xFF:  # padding before a marker
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD9:  # markers without a length
            at += 2
        else:
            at += 2 + _big(data[at + 2 : at + 4])
    return 0, 0


def _big(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _little(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


IMAGE = frozenset({"image", "image_url", "input_image"})
AUDIO = frozenset({"audio", "audio_url", "input_audio"})
VIDEO = frozenset({"video", "video_url", "input_video"})
DOCUMENT = frozenset({"document", "document_url", "file", "input_file", "pdf"})
OTHER = frozenset({"media", "inline_data"})

ASSUMED_SIZE = (1024, 1024)
ASSUMED_SECONDS = 60.0
ASSUMED_PAGES = 5
ASSUMED_BYTES_PER_PAGE = 50_000
ASSUMED_AUDIO_BYTES_PER_SECOND = 16_000
"""MP3 at 128 kbit/s. A WAV says its own rate."""
ASSUMED_VIDEO_BYTES_PER_SECOND = 250_000

BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\r\n"

Size = tuple[int, int]


class MediaPrices(NamedTuple):
    """One provider's price list, in tokens."""

    name: str
    image: Callable[[Size | None, str], int]
    """By width and height (None when unknown) and OpenAI's `detail`."""
    audio_second: float
    video_second: float
    page: int


def _openai_tiles(size: Size | None, detail: str, base: int, tile: int) -> int:
    """Published: fitted into 2048 x 2048, then the shorter side to 768; so much per 512-pixel tile, plus a base.

    That `auto` means `high` is our assumption.
    """
    if detail == "low":
        return base
    width, height = _shrunk(size or ASSUMED_SIZE, longest=2048)
    width, height = _scaled((width, height), min(1.0, 768 / min(width, height)))
    return base + tile * ceil(width / 512) * ceil(height / 512)


def openai_image(size: Size | None, detail: str) -> int:
    return _openai_tiles(size, detail, base=85, tile=170)


def openai_mini_image(size: Size | None, detail: str) -> int:
    """Published for gpt-4o-mini, whose images cost 33 times as many (cheaper) tokens."""
    return _openai_tiles(size, detail, base=2833, tile=5667)


def anthropic_image(size: Size | None, _detail: str) -> int:
    """Published: width x height / 750 after fitting the long edge into 1568; about 1,600 at most."""
    if size is None:
        return 1600
    width, height = _shrunk(size, longest=1568)
    return min(1600, ceil(width * height / 750))


def gemini_image(size: Size | None, _detail: str) -> int:
    """Published: 258 for every tile of 768 x 768; so also for an image of at most 384 x 384."""
    width, height = size or ASSUMED_SIZE
    return 258 * ceil(width / 768) * ceil(height / 768)


OPENAI = MediaPrices("openai", openai_image, audio_second=10, video_second=263, page=1500)
"""Audio is published. A page is sent as an image and as text: 765 and about as much again, which is our assumption.
OpenAI takes no video; Gemini's price stands in."""

OPENAI_MINI = OPENAI._replace(name="openai-mini", image=openai_mini_image, page=26_000)

ANTHROPIC = MediaPrices("anthropic", anthropic_image, audio_second=10, video_second=263, page=3000)
"""A page is published as 1,500 to 3,000. Anthropic takes no audio and no video; the others' prices stand in."""

GEMINI = MediaPrices("gemini", gemini_image, audio_second=32, video_second=263, page=258)
"""All published."""


def media_tokens(part: Mapping[str, Any], prices: MediaPrices) -> int | None:
    """The price of one part of a message's content, or None if the part is no media."""
    kind = part.get("type")
    if kind not in IMAGE | AUDIO | VIDEO | DOCUMENT | OTHER:
        return None
    payload = next((text for text in strings(part) if is_blob(text, at_least=256)), None)
    declared, data = _split(payload) if payload is not None else ("", None)
    family = f"{declared or _find(part, 'media_type', 'mime_type', 'format')}/".partition("/")[0]
    if kind in IMAGE or family == "image":
        return prices.image(image_size(data) if data else None, _find(part, "detail"))
    if kind in AUDIO or family == "audio":
        return ceil(prices.audio_second * _audio_seconds(data))
    if kind in VIDEO or family == "video":
        return ceil(prices.video_second * _seconds(data, ASSUMED_VIDEO_BYTES_PER_SECOND))
    pages = ASSUMED_PAGES if data is None else ceil(_size(data) / ASSUMED_BYTES_PER_PAGE)
    return prices.page * max(1, pages)


def is_blob(text: str, at_least: int = 1024) -> bool:
    """Whether a string is encoded data: a data URL, or a long run of nothing but base64."""
    if text.startswith("data:"):
        return ";base64," in text[:256]
    return len(text) >= at_least and not text[:1024].strip(BASE64)


def strings(value: Any, depth: int = 0) -> Iterator[str]:
    """Every string inside a JSON value, to a depth at which media is still to be expected."""
    if isinstance(value, str):
        yield value
    elif depth < 4:
        inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        for inner in inside:
            yield from strings(inner, depth + 1)


def _find(part: Mapping[str, Any], *keys: str) -> str:
    """The first of these keys that holds a string, in the part or in a mapping directly inside it."""
    for place in (part, *part.values()):
        if isinstance(place, Mapping):
            for key in keys:
                if isinstance(found := place.get(key), str):
                    return found
    return ""


def _split(payload: str) -> tuple[str, str]:
    """A data URL's media type and its base64; a bare base64 has no media type."""
    if not payload.startswith("data:"):
        return "", payload
    comma = payload.index(",")
    return payload[5:comma].partition(";")[0], payload[comma + 1 :]


def _size(data: str) -> int:
    return len(data) * 3 // 4


def _seconds(data: str | None, bytes_per_second: int) -> float:
    return ASSUMED_SECONDS if data is None else max(1.0, _size(data) / bytes_per_second)


def _audio_seconds(data: str | None) -> float:
    start = head(data, 32) if data else b""
    rate = int.from_bytes(start[28:32], "little") if start[:4] == b"RIFF" and start[8:12] == b"WAVE" else 0
    return _seconds(data, rate or ASSUMED_AUDIO_BYTES_PER_SECOND)


def _shrunk(size: Size, longest: int) -> Size:
    return _scaled(size, min(1.0, longest / max(size)))


def _scaled(size: Size, factor: float) -> Size:
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
