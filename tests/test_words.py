"""The old vocabulary of the code does not come back: exact identifiers, and phrases in comments, docstrings and messages."""

import io
import re
import tokenize
import tomllib
from pathlib import Path

import pytest

import minutebook

SOURCE = Path(minutebook.__file__).parent
DATA = {"testing/simulator/words.py", "testing/simulator/code_samples.py"}
"""Modules that hold the texts of simulated users and programs."""
WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
IDENTIFIERS = frozenset(WORDS["identifiers"].split())
PHRASES = re.compile(r"\b(" + "|".join(map(re.escape, WORDS["phrases"])) + r")\b", re.IGNORECASE)
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).as_posix() not in DATA)


F_STRING_PARTS = {getattr(tokenize, f"FSTRING_{name}", None) for name in ("START", "MIDDLE", "END")}
"""The tokens of f-strings since Python 3.12. Before, an f-string is one token."""
QUOTES = re.compile(r"^[a-zA-Z]{0,2}[\"']+|[\"']+$")


def old_words(text):
    """(line, word) for each old identifier or phrase."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for token in tokens:
        if token.type == tokenize.NAME and token.string.strip("_") in IDENTIFIERS:
            yield token.start[0], token.string
    for line, prose in prose_of(tokens):
        yield from ((line, match.group()) for match in PHRASES.finditer(prose))


def prose_of(tokens):
    """(line, text) of each string and comment. Adjacent strings and comments on successive lines are one text."""
    kinds = {tokenize.COMMENT: "comment", tokenize.STRING: "string"} | dict.fromkeys(F_STRING_PARTS - {None}, "string")
    last_kind, line, pieces = None, 0, []
    for token in tokens:
        kind = kinds.get(token.type)
        if token.type == tokenize.NL and last_kind is not None:
            continue
        if kind != last_kind:
            yield line, re.sub(r"\s+", " ", "".join(pieces))
            last_kind, line, pieces = kind, token.start[0], []
        if kind == "string":
            pieces.append(QUOTES.sub("", token.string))
        elif kind == "comment":
            pieces.append(f"{token.string.lstrip('#')} ")


@pytest.mark.parametrize("package", sorted({path.relative_to(SOURCE).parts[0] for path in MODULES}))
def test_no_old_identifier_or_phrase_is_used(package):
    modules = [path for path in MODULES if path.relative_to(SOURCE).parts[0] == package]

    used = [
        f"{path.relative_to(SOURCE).as_posix()}:{line}: {word}"
        for path in modules
        for line, word in old_words(path.read_text(encoding="utf-8"))
    ]

    assert used == [], "use the field's word:\n" + "\n".join(used)


def test_an_old_word_is_found_as_an_identifier_and_in_prose():
    assert [word for _, word in old_words("told = 1")] == ["told"]
    assert [word for _, word in old_words('"""It is\n    told."""')] == ["is told"]
    assert [word for _, word in old_words('"""He told me."""\nteller = 1')] == []


def test_an_old_phrase_is_found_in_parts_of_a_string_and_on_successive_lines_of_a_comment():
    assert [word for _, word in old_words('x = ("It is "\n    f"told to {y}")')] == ["is told"]
    assert [word for _, word in old_words('x = f"{y} is told"')] == ["is told"]
    assert [word for _, word in old_words("# It is\n# told.\n")] == ["is told"]
    assert [word for _, word in old_words('x = "It is"\ny = "told"\n')] == []


def test_no_old_phrase_is_used_in_the_pages():
    """Documentation, and the templates and scripts of the service and the stores."""
    root = Path(__file__).parents[1]
    sources = [path for ending in ("html", "js", "css", "lua") for path in SOURCE.rglob(f"*.{ending}")]
    pages = [
        *root.glob("*.md"),
        *(root / "docs").rglob("*.md"),
        *(path for path in sources if path.parent.name != "vendor"),
    ]
    prose = {page: re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL) for page in pages}

    used = [
        f"{page.relative_to(root)}: {match.group()}"
        for page, text in prose.items()
        for match in PHRASES.finditer(re.sub(r"\s+", " ", text))
    ]

    assert used == [], "use the field's word:\n" + "\n".join(used)
