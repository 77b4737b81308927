"""The whole content of a message as blocks: prose, code, differences, JSON, thinking, pictures.

A block has plain texts and class names only; the templates escape every text.
"""

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, Final, NamedTuple

from minutebook.record.message import Message, is_result, text_of
from minutebook.service.inspector.cards import long_lines
from minutebook.service.inspector.heads import ANSI, calls_of, edit_keys, parts_of, thinking_of

MAX_LINES: Final = 400
MAX_LINE_CHARACTERS: Final = 2_000
_MAX_TEXT: Final = 400_000
_MAX_PICTURE: Final = 8_000_000
_FENCE: Final = re.compile(r"^(```|~~~)[^\n]*\n(.*?)(?:^\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"(\*\*[^*\n]{1,200}\*\*|`[^`\n]{1,200}`)")
_HEADING: Final = re.compile(r"#{1,6} ")
_SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")
"""The escape sequence of a terminal for bold text and colours."""
_PICTURES: Final = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
"""First bytes of the pictures that are shown → their type. SVG is never shown: it can contain scripts."""


class TextSpan(NamedTuple):
    """A text with the names of its classes."""

    classes: str
    text: str


class CodeLine(NamedTuple):
    """A line of code."""

    number: int | None
    classes: str
    spans: Sequence[TextSpan]


@dataclass(frozen=True, slots=True)
class ContentBlock:
    """A part of a message. `kind` is `prose`, `thought`, `code`, `picture` or `note`."""

    kind: str
    title: str = ""
    spans: Sequence[TextSpan] = ()
    lines: Sequence[CodeLine] = ()
    more: int = 0
    """The number of lines that are left out."""
    picture: str = ""
    """A `data:` URL."""


def blocks_of(message: Message, used: Collection[str] = ()) -> Iterator[ContentBlock]:
    """The blocks of a message. Lines in `used` are marked."""
    thinking = thinking_of(message)
    if thinking:
        yield ContentBlock("thought", "Thinking", _prose(thinking[:_MAX_TEXT]))
    text = text_of(message)
    if is_result(message):
        yield from _result_blocks(text, used)
    else:
        yield from _text_blocks(text[:_MAX_TEXT], used)
    if len(text) > _MAX_TEXT:
        yield ContentBlock(
            "note", spans=[TextSpan("", f"{len(text) - _MAX_TEXT:,} more characters are in the whole text.")]
        )
    for part in parts_of(message):
        yield from _part_blocks(part)
    for name, arguments in calls_of(message):
        yield from _call_blocks(name, arguments)


def _text_blocks(text: str, used: Collection[str]) -> Iterator[ContentBlock]:
    end = 0
    for fence in _FENCE.finditer(text):
        if text[end : fence.start()].strip():
            yield ContentBlock("prose", spans=_prose(text[end : fence.start()].strip("\n")))
        yield code_block(fence[2].rstrip("\n"), used=used)
        end = fence.end()
    if text[end:].strip():
        yield ContentBlock("prose", spans=_prose(text[end:].strip("\n")))


def _result_blocks(text: str, used: Collection[str]) -> Iterator[ContentBlock]:
    shown = text[:_MAX_TEXT]
    if shown[:1] in {"{", "["} and len(text) <= _MAX_TEXT:
        try:
            yield code_block(json.dumps(json.loads(text), indent=2, ensure_ascii=False), "JSON", used=used)
        except (ValueError, RecursionError):
            pass
        else:
            return
    yield code_block(shown, used=used, is_diff=_is_diff(shown))


def _is_diff(text: str) -> bool:
    return text.startswith(("diff --git", "--- ", "Index: ", "*** Begin Patch")) or "\n@@ " in text[:4000]


def _call_blocks(name: str, arguments: Any) -> Iterator[ContentBlock]:
    if isinstance(arguments, Mapping):
        keys = edit_keys(arguments)
        if keys is not None:
            old, new = (arguments[key][:_MAX_TEXT].split("\n") for key in keys)
            others = {key: value for key, value in arguments.items() if key not in keys}
            file = next((others.pop(key) for key in ("file_path", "path") if isinstance(others.get(key), str)), "")
            changes = list(unified_diff(old, new, lineterm="", n=3))[2:]
            yield code_block("\n".join(changes), f"{name} {file}".strip(), is_diff=True)
            if others:
                yield code_block(_json(others), name)
            return
        texts = {key: value for key, value in arguments.items() if isinstance(value, str) and "\n" in value}
        if texts or len(arguments) == 1:
            others = {key: value for key, value in arguments.items() if key not in texts}
            if others:
                yield code_block(_json(others), name)
            for key, value in texts.items():
                yield code_block(value[:_MAX_TEXT], f"{name}: {key}", is_diff=_is_diff(value))
            return
    yield code_block(arguments if isinstance(arguments, str) else _json(arguments), name)


def _part_blocks(part: Mapping[str, Any]) -> Iterator[ContentBlock]:
    kind = part.get("type")
    if isinstance(part.get("text"), str) or kind in {"thinking", "redacted_thinking"}:
        return
    url = part.get("image_url")
    url = url.get("url") if isinstance(url, Mapping) else url
    source = part.get("source")
    if isinstance(source, Mapping) and source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    if isinstance(url, str):
        picture = safe_picture(url)
        if picture:
            yield ContentBlock("picture", picture=picture)
        else:
            yield ContentBlock("note", spans=[TextSpan("", f"A picture that is not shown: {url[:200]}")])
        return
    yield code_block(_json(part)[:20_000], str(kind or "part"))


def safe_picture(url: str) -> str | None:
    """The `data:` URL of a picture, rebuilt from its bytes; None if it is not a PNG, JPEG, GIF or WebP picture."""
    head, comma, data = url.partition(",")
    if not head.startswith("data:image/") or not head.endswith(";base64") or not comma or len(data) > _MAX_PICTURE:
        return None
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    kind = next((kind for start, kind in _PICTURES.items() if content.startswith(start)), None)
    if kind is None or (kind == "webp" and content[8:12] != b"WEBP"):
        return None
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return str(value)[:_MAX_TEXT]


def code_block(text: str, title: str = "", *, used: Collection[str] = (), is_diff: bool = False) -> ContentBlock:
    """Lines of code, with colours of terminals and of differences."""
    all_lines = text.split("\n")
    lines, style = [], ""
    for number, line in enumerate(all_lines[:MAX_LINES], 1):
        spans, style = _coloured_spans(line[: MAX_LINE_CHARACTERS + 200], style)
        if len(line) > MAX_LINE_CHARACTERS:
            spans = [*spans, TextSpan("mute", f" … {len(line) - MAX_LINE_CHARACTERS:,} more characters")]
        classes = ("add" if line.startswith("+") else "del" if line.startswith("-") else "") if is_diff else ""
        if used and not classes and any(stripped in used for stripped in long_lines(line)):
            classes = "used"
        lines.append(CodeLine(None if is_diff else number, classes, spans))
    return ContentBlock("code", title, lines=lines, more=max(0, len(all_lines) - MAX_LINES))


def _coloured_spans(line: str, style: str) -> tuple[list[TextSpan], str]:
    """The line in the 16 colours of terminals. Other escape sequences are removed."""
    if "\x1b" not in line:
        return [TextSpan(style, line[:MAX_LINE_CHARACTERS])], style
    spans, end = list[TextSpan](), 0
    for match in _SGR.finditer(line):
        spans.append(TextSpan(style, ANSI.sub("", line[end : match.start()])))
        end = match.end()
        for code in (match[1] or "0").split(";"):
            value = int(code[:3] or "0")
            style = "" if value == 0 else _with_style(style, value)
    spans.append(TextSpan(style, ANSI.sub("", line[end:])))
    return [span for span in spans if span.text], style


def _with_style(style: str, code: int) -> str:
    """The class names after a code of a terminal: `a1` is bold, `a30` to `a37` are colours."""
    if code == 1:
        return f"{style} a1".strip() if "a1" not in style.split() else style
    if 30 <= code <= 37 or 90 <= code <= 97:
        bold = ["a1"] if "a1" in style.split() else []
        return " ".join([*bold, f"a{code if code < 90 else code - 60}"])
    return style


def _prose(text: str) -> list[TextSpan]:
    """Text with headings, bold words and code. Everything else of Markdown stays as it is, also links."""
    spans = []
    for line in ANSI.sub("", text).split("\n"):
        shown = f"{line[:MAX_LINE_CHARACTERS]}\n" if len(line) <= MAX_LINE_CHARACTERS else f"{line[:MAX_LINE_CHARACTERS]} … {len(line) - MAX_LINE_CHARACTERS:,} more characters\n"  # fmt: skip
        if _HEADING.match(line):
            spans.append(TextSpan("a1", shown))
            continue
        for piece in _INLINE.split(shown):
            if piece.startswith("**") and len(piece) > 4:
                spans.append(TextSpan("a1", piece[2:-2]))
            elif piece.startswith("`") and len(piece) > 2:
                spans.append(TextSpan("mono", piece[1:-1]))
            elif piece:
                spans.append(TextSpan("", piece))
    return spans
