"""Media costs what its provider publishes, and never what its base64 would cost as text."""

import base64
import struct
from typing import Any

import pytest

from minutebook.tokens import ANTHROPIC, GEMINI, OPENAI, OPENAI_MINI, ExactCounter, MediaPrices, ScaledCounter
from minutebook.tokens.media import image_size, media_tokens

NOISE = bytes(range(256)) * 400


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height) + b"\x08\x06" + NOISE


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + NOISE


def jpeg(width: int, height: int, metadata: int = 3000) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", metadata + 2) + b"\xff\xc0" * (metadata // 2)
    huffman = b"\xff\xc4\x00\x04\x00\x00"
    frame = b"\xff\xc2\x00\x0b\x08" + struct.pack(">HH", height, width) + b"\x03"
    return b"\xff\xd8" + exif + b"\xff" + huffman + frame + NOISE


def webp(width: int, height: int) -> bytes:
    return b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height) + NOISE


def webp_lossless(width: int, height: int) -> bytes:
    return b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + NOISE


def webp_extended(width: int, height: int) -> bytes:
    canvas = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + canvas + NOISE


def wav(seconds: float, rate: int = 32_000) -> bytes:
    header = (
        b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0"
        + struct.pack("<II", rate // 2, rate)
        + b"\x02\0\x10\0data\0\0\0\0"
    )
    return header + b"\0" * int(seconds * rate - len(header))


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def data_url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{encoded(data)}"


def image(data: bytes, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(data), **more}}


@pytest.mark.parametrize("make", [png, gif, jpeg, webp, webp_lossless, webp_extended], ids=lambda make: make.__name__)
def test_reads_an_images_size_from_its_first_bytes(make: Any) -> None:
    assert image_size(encoded(make(1234, 567))) == (1234, 567)


def test_reads_base64_that_is_broken_into_lines() -> None:
    assert image_size(base64.encodebytes(jpeg(640, 480)).decode()) == (640, 480)


@pytest.mark.parametrize("data", [b"BM" + NOISE, png(0, 10), jpeg(10, 10, metadata=65_000)[:60_000], b""])
def test_an_image_that_does_not_say_its_size_has_none(data: bytes) -> None:
    assert image_size(encoded(data)) is None


def test_what_is_not_base64_has_no_size() -> None:
    assert image_size("https://example.com/cat.png") is None
    assert image_size("é" * 100) is None


PRICED = [
    (OPENAI, (1024, 1024), "high", 765),  # OpenAI's own two examples
    (OPENAI, (2048, 4096), "high", 1105),
    (OPENAI, (4096, 8192), "low", 85),
    (OPENAI, (512, 512), "auto", 255),
    (OPENAI, (1700, 800), "auto", 85 + 8 * 170),
    (OPENAI, None, "high", 765),
    (OPENAI_MINI, (1024, 1024), "high", 25_501),
    (ANTHROPIC, (200, 200), "", 54),  # Anthropic's table
    (ANTHROPIC, (1000, 1000), "", 1334),
    (ANTHROPIC, (3000, 600), "", 657),
    (ANTHROPIC, (8000, 8000), "", 1600),
    (ANTHROPIC, None, "", 1600),
    (GEMINI, (384, 384), "", 258),
    (GEMINI, (385, 100), "", 258),
    (GEMINI, (1536, 769), "", 4 * 258),
]


@pytest.mark.parametrize(("prices", "size", "detail", "expected"), PRICED)
def test_an_image_costs_what_its_provider_publishes(
    prices: MediaPrices, size: tuple[int, int] | None, detail: str, expected: int
) -> None:
    assert prices.image(size, detail) == expected


def test_an_image_in_a_message_is_priced_by_its_size_and_detail() -> None:
    counter = ExactCounter()

    assert counter.message({"role": "user", "content": [image(png(2048, 4096))]}) == 4 + 1105
    assert counter.message({"role": "user", "content": [image(png(2048, 4096), detail="low")]}) == 4 + 85


def test_the_counter_chooses_the_price_list() -> None:
    message = {"role": "user", "content": [image(png(1000, 1000))]}

    assert ScaledCounter(ExactCounter(), 1.55, ANTHROPIC).message(message) == 4 + 1334
    assert ExactCounter("gemma3", GEMINI).message(message) == 4 + 4 * 258


BLOB = data_url(png(64, 64))
SPELLINGS: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": {"url": BLOB}},
    {"type": "image_url", "image_url": BLOB},
    {"type": "input_image", "image_url": BLOB, "detail": "auto"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded(png(64, 64))}},
    {"type": "file", "file": {"file_data": BLOB}},
    {"type": "media", "mime_type": "image/png", "data": encoded(png(64, 64))},
]


@pytest.mark.parametrize("part", SPELLINGS, ids=lambda part: part["type"])
def test_every_spelling_of_an_image_costs_the_same(part: dict[str, Any]) -> None:
    assert media_tokens(part, OPENAI) == 255


MEDIA: list[dict[str, Any]] = [
    *SPELLINGS,
    {"type": "input_audio", "input_audio": {"data": encoded(NOISE), "format": "mp3"}},
    {"type": "audio", "data": encoded(NOISE)},
    {"type": "file", "file": {"filename": "a.pdf", "file_data": data_url(NOISE, "application/pdf")}},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": encoded(NOISE)}},
    {"type": "video_url", "video_url": {"url": data_url(NOISE, "video/mp4")}},
    {"type": "hologram", "frames": [{"data": encoded(NOISE)}]},
    {"type": "tool_result", "content": [{"type": "image", "source": {"data": encoded(NOISE)}}]},
]


@pytest.mark.parametrize("part", MEDIA, ids=lambda part: part["type"])
def test_media_is_never_counted_as_text(part: dict[str, Any]) -> None:
    seen: list[str] = []

    class Watching(ExactCounter):
        def count(self, text: str) -> int:
            seen.append(text)
            return super().count(text)

    assert Watching().message({"role": "user", "content": [part]}) > 4
    assert all(encoded(NOISE)[200:300] not in text for text in seen)


def test_an_unknown_part_costs_its_words_and_an_image_for_each_blob() -> None:
    counter = ExactCounter()
    part = {"type": "hologram", "caption": "two views of a cat", "data": [BLOB, BLOB]}
    emptied = {"type": "hologram", "caption": "two views of a cat", "data": ["", ""]}

    assert counter.message({"content": [part]}) == counter.message({"content": [emptied]}) + 2 * 765


@pytest.mark.parametrize(
    ("part", "prices", "expected"),
    [
        ({"type": "input_audio", "input_audio": {"data": encoded(wav(30)), "format": "wav"}}, OPENAI, 300),
        ({"type": "input_audio", "input_audio": {"data": encoded(wav(30)), "format": "wav"}}, GEMINI, 960),
        ({"type": "input_audio", "input_audio": {"data": encoded(b"\0" * 160_000), "format": "mp3"}}, OPENAI, 100),
        ({"type": "audio_url", "audio_url": {"url": "https://example.com/a.mp3"}}, OPENAI, 600),
        ({"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}, GEMINI, 263 * 60),
        ({"type": "file", "file": {"file_id": "file-abc"}}, GEMINI, 258 * 5),
        ({"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}, ANTHROPIC, 15_000),
        ({"type": "file", "file": {"file_data": data_url(b"\0" * 120_000, "application/pdf")}}, GEMINI, 258 * 3),
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, OPENAI, 765),
        ({"type": "image_url", "image_url": None}, OPENAI, 765),
    ],
)
def test_sound_film_and_paper_cost_by_length_or_by_what_we_assume(
    part: dict[str, Any], prices: MediaPrices, expected: int
) -> None:
    assert media_tokens(part, prices) == pytest.approx(expected, abs=1)


def test_a_plain_text_document_is_text() -> None:
    counter = ExactCounter()
    text = "The minutes of the last meeting were read and approved."
    part = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}

    assert counter.message({"content": [part]}) == 4 + counter.count(text)


def test_a_long_word_is_no_media() -> None:
    counter = ExactCounter()

    assert counter.message({"content": [{"type": "x", "text": "a" * 500}]}) < 4 + 200
