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


def old_words(text):
    """(line, word) for each old identifier or phrase. Phrases are searched across line breaks of prose."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string.strip("_") in IDENTIFIERS:
            yield token.start[0], token.string
        elif token.type in {tokenize.STRING, tokenize.COMMENT}:
            prose = re.sub(r"\s+", " ", token.string)
            yield from ((token.start[0], match.group()) for match in PHRASES.finditer(prose))


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


def test_no_old_phrase_is_used_in_the_pages():
    root = Path(__file__).parents[1]
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    prose = {page: re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL) for page in pages}

    used = [
        f"{page.relative_to(root)}: {match.group()}"
        for page, text in prose.items()
        for match in PHRASES.finditer(re.sub(r"\s+", " ", text))
    ]

    assert used == [], "use the field's word:\n" + "\n".join(used)
