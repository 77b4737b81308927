"""A made-up project with files that can be read, searched, edited and tested.

Modules are written when they are first needed, so a project has no last one; each is small, and every question is asked
of one area, so the work for a session grows with its length and no faster.
"""

import difflib
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from string import Template

from minutebook.testing.simulator.code_samples import FEATURES, IMPORTS, MODULE, PARTS, TESTS, Feature, Part
from minutebook.testing.simulator.words import THEMES

AREA_SIZE = 4
"""How many modules an area has."""
MODULE_SIZE = 11
"""How many functions a module has to begin with."""
MISTAKES = 4
"""How many of those are wrong."""


@dataclass(slots=True)
class Module:
    """One module of the project and what may still happen to it."""

    area: str
    noun: str
    path: str
    test_path: str
    words: dict[str, str]
    broken: list[Part] = field(default_factory=list)
    sound: list[Part] = field(default_factory=list)
    wishes: list[Feature] = field(default_factory=list)

    def told(self, text: str) -> str:
        """A template in the words of this module."""
        return Template(text).substitute(self.words)


@dataclass(slots=True)
class Commit:
    """One entry of the project's log."""

    id: str
    title: str


class Project:
    """The files, the log and the tickets of a made-up project; a function of the random source it is given."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.theme = rng.choice(THEMES)
        self._areas = rng.sample(self.theme.areas, len(self.theme.areas))
        self._made = 0
        self.files: dict[str, dict[str, str]] = {}
        """Area → path → text."""
        self.modules: dict[str, list[Module]] = {}
        """Area → its modules."""
        self.changed: dict[str, str] = {}
        """Path → text at the last commit, for files that have changed since."""
        self.log = [Commit(self.hash(), title) for title in self._history()]
        self._ticket = rng.randrange(400, 2400)

    def next_area(self) -> str:
        """Write the modules of another area, and return its name."""
        number, name = divmod(self._made, len(self._areas))
        area = self._areas[name] if not number else f"{self._areas[name]}_{number + 1}"
        self._made += 1
        self.files[area] = {}
        self.modules[area] = [self._module(area, *noun) for noun in self._rng.sample(self.theme.nouns, AREA_SIZE)]
        names = [f"from {self.theme.package}.{area}.{m.noun} import {m.words['Noun']}\n" for m in self.modules[area]]
        self.files[area][f"src/{self.theme.package}/{area}/__init__.py"] = "".join(sorted(names))
        return area

    def area_names(self) -> list[str]:
        """The areas that a listing shows, whether or not their modules have been needed yet."""
        return sorted({*self._areas, *self.files})

    def text(self, path: str) -> str:
        return self.files[self.area_of(path)][path]

    def write(self, path: str, text: str) -> None:
        files = self.files[self.area_of(path)]
        self.changed.setdefault(path, files[path])
        files[path] = text

    def area_of(self, path: str) -> str:
        """The area of a file or folder: the last part of a path below `src/package` or `tests` that is one."""
        return next(part for part in path.split("/") if part in self.files)

    def hits(self, area: str, pattern: str, *, below: str = "") -> list[str]:
        """What a search in one area prints, line by line."""
        return [
            f"{path}:{number}:{line}"
            for path, text in sorted(self.files[area].items())
            if path.startswith(below)
            for number, line in enumerate(text.splitlines(), 1)
            if pattern in line
        ]

    def tests(self, path: str) -> list[str]:
        """The tests in a file, by name."""
        return re.findall(r"^def (test_\w+)", self.text(path), re.MULTILINE)

    def diff(self, paths: Iterable[str]) -> str:
        """What changed in these files since the last commit."""
        texts = []
        for path in paths:
            before, after = self.changed.get(path, self.text(path)).splitlines(), self.text(path).splitlines()
            lines = list(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm=""))
            if lines:
                texts.append("\n".join([f"diff --git a/{path} b/{path}", *lines]))
        return "\n".join(texts)

    def commit(self, title: str) -> Commit:
        made = Commit(self.hash(), title)
        self.log = [made, *self.log[:11]]
        self.changed = {}
        return made

    def ticket(self) -> str:
        self._ticket += self._rng.randrange(1, 9)
        return f"{self.theme.ticket}-{self._ticket}"

    def hash(self) -> str:
        return f"{self._rng.getrandbits(28):07x}"

    def _history(self) -> list[str]:
        area = self._areas
        return [
            f"Log the upstream's request id in {area[0]}",
            f"Move {area[1]} settings to pyproject",
            "Bump ruff to 0.12",
            f"{area[2].capitalize()}: answer 409 instead of 500 on a double submit",
            "Run the tests in random order",
            f"Describe the {area[3]} tables in docs/schema.md",
            "Drop Python 3.10",
        ]

    def _module(self, area: str, noun: str, nouns: str) -> Module:
        theme = self.theme
        words = {
            "package": theme.package,
            "area": area,
            "noun": noun,
            "nouns": nouns,
            "Noun": noun.capitalize(),
            "owner": theme.owner,
            "amount": theme.amount,
            "open": theme.open,
            "closed": theme.closed,
            "first": theme.owners[0],
            "second": theme.owners[1],
            "prefix": noun[:3],
        }
        path, test_path = f"src/{theme.package}/{area}/{noun}.py", f"tests/{area}/test_{noun}.py"
        module = Module(area, noun, path, test_path, words)
        parts = self._rng.sample(PARTS, MODULE_SIZE)
        module.broken, module.sound = parts[:MISTAKES], parts[MISTAKES:]
        module.wishes = self._rng.sample(FEATURES, 2)
        self._rng.shuffle(parts)
        self.files[area][path] = _source(module, parts)
        self.files[area][test_path] = _tests(module, parts)
        return module


def _source(module: Module, parts: list[Part]) -> str:
    body = module.told("\n\n".join([MODULE, *(wrong(part) if part in module.broken else part.code for part in parts)]))
    used = [line for words, line in IMPORTS if any(word in body for word in words.split("|"))]
    return body.replace("{imports}", "\n".join([*used, ""]))


def _tests(module: Module, parts: list[Part]) -> str:
    names = sorted(module.told(name) for name in ("${Noun}Error", "$Noun", *(part.name for part in parts)))
    text = module.told("\n\n".join([TESTS, *(part.test for part in module.sound)]))
    return text.replace("{names}", "\n".join(f"    {name}," for name in names))


def wrong(part: Part) -> str:
    """A part's code with its mistake in it."""
    assert part.good in part.code, part.name
    return part.code.replace(part.good, part.bad)
