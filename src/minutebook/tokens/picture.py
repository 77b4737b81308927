"""An image's width and height from the first bytes of its base64, without decoding the rest."""

from binascii import Error, a2b_base64

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
