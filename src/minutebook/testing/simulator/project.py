"""A generated project with files that can be read, searched, edited and tested.

`next_area` generates the modules of one more area, so a project can have any number of areas. Modules are small and every
operation works on one area, so the cost of a session is linear in its length.
"""

import difflib
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from string import Template

from minutebook.testing.simulator.code_samples import (
    FEATURES,
    FUNCTIONS,
    IMPORTS,
    MODULE,
    TESTS,
    Feature,
    SampleFunction,
)
from minutebook.testing.simulator.words import THEMES

AREA_SIZE = 4
"""Number of modules per area."""
MODULE_SIZE = 11
"""Number of functions per module at the start."""
BUGS_PER_MODULE = 4
"""Functions per module that have a bug."""


@dataclass(slots=True)
class Module:
    """One module of the project, with the bugs to report and the features to request."""

    area: str
    noun: str
    path: str
    test_path: str
    words: dict[str, str]
    """Variable of the templates → its value in this module."""
    buggy_functions: list[SampleFunction] = field(default_factory=list)
    """The functions whose bug is not fixed yet."""
    correct_functions: list[SampleFunction] = field(default_factory=list)
    """The functions that never had a bug."""
    open_features: list[Feature] = field(default_factory=list)
    """The features that were not requested yet."""

    def fill(self, text: str) -> str:
        """The template with this module's names filled in."""
        return Template(text).substitute(self.words)


@dataclass(slots=True)
class Commit:
    """One entry of the project's log."""

    id: str
    title: str


class Project:
    """Files, commit log and tickets of a generated project. The random source determines everything."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.theme = rng.choice(THEMES)
        self._areas = rng.sample(self.theme.areas, len(self.theme.areas))
        self._area_count = 0
        self.files: dict[str, dict[str, str]] = {}
        """Area → path → text."""
        self.modules: dict[str, list[Module]] = {}
        """Area → its modules."""
        self.changed_files: dict[str, str] = {}
        """Path → text at the last commit, for files that have changed since."""
        self.log = [Commit(self.new_hash(), title) for title in self._history()]
        self._last_ticket = rng.randrange(400, 2400)

    def next_area(self) -> str:
        """Generate the modules of another area and return its name."""
        round_number, index = divmod(self._area_count, len(self._areas))
        area = self._areas[index] if not round_number else f"{self._areas[index]}_{round_number + 1}"
        self._area_count += 1
        self.files[area] = {}
        self.modules[area] = [self._module(area, *noun) for noun in self._rng.sample(self.theme.nouns, AREA_SIZE)]
        package = self.theme.package
        imports = [
            f"from {package}.{area}.{module.noun} import {module.words['Noun']}\n" for module in self.modules[area]
        ]
        self.files[area][f"src/{package}/{area}/__init__.py"] = "".join(sorted(imports))
        return area

    def area_names(self) -> list[str]:
        """All areas, including those whose modules are not generated yet."""
        return sorted({*self._areas, *self.files})

    def text(self, path: str) -> str:
        return self.files[self.area_of(path)][path]

    def write(self, path: str, text: str) -> None:
        files = self.files[self.area_of(path)]
        self.changed_files.setdefault(path, files[path])
        files[path] = text

    def area_of(self, path: str) -> str:
        """The area of a file or folder: the first part of the path that is an area."""
        return next(part for part in path.split("/") if part in self.files)

    def search_lines(self, area: str, pattern: str, *, below: str = "") -> list[str]:
        """The output lines of a search in one area."""
        return [
            f"{path}:{number}:{line}"
            for path, text in sorted(self.files[area].items())
            if path.startswith(below)
            for number, line in enumerate(text.splitlines(), 1)
            if pattern in line
        ]

    def tests(self, path: str) -> list[str]:
        """The names of the tests in a file."""
        return re.findall(r"^def (test_\w+)", self.text(path), re.MULTILINE)

    def diff(self, paths: Iterable[str]) -> str:
        """The changes of these files since the last commit, as a unified diff."""
        texts = []
        for path in paths:
            before, after = self.changed_files.get(path, self.text(path)).splitlines(), self.text(path).splitlines()
            lines = list(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm=""))
            if lines:
                texts.append("\n".join([f"diff --git a/{path} b/{path}", *lines]))
        return "\n".join(texts)

    def commit(self, title: str) -> Commit:
        """Commit all changes. The log keeps the last 12 commits."""
        commit = Commit(self.new_hash(), title)
        self.log = [commit, *self.log[:11]]
        self.changed_files = {}
        return commit

    def new_ticket(self) -> str:
        """The id of a new ticket."""
        self._last_ticket += self._rng.randrange(1, 9)
        return f"{self.theme.ticket}-{self._last_ticket}"

    def new_hash(self) -> str:
        """A random commit id."""
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
        samples = self._rng.sample(FUNCTIONS, MODULE_SIZE)
        module.buggy_functions, module.correct_functions = samples[:BUGS_PER_MODULE], samples[BUGS_PER_MODULE:]
        module.open_features = self._rng.sample(FEATURES, 2)
        self._rng.shuffle(samples)
        self.files[area][path] = _source(module, samples)
        self.files[area][test_path] = _tests(module, samples)
        return module


def _source(module: Module, samples: list[SampleFunction]) -> str:
    body = module.fill(
        "\n\n".join(
            [
                MODULE,
                *(code_with_bug(sample) if sample in module.buggy_functions else sample.code for sample in samples),
            ]
        )
    )
    used_imports = [line for words, line in IMPORTS if any(word in body for word in words.split("|"))]
    return body.replace("{imports}", "\n".join([*used_imports, ""]))


def _tests(module: Module, samples: list[SampleFunction]) -> str:
    names = sorted(module.fill(name) for name in ("${Noun}Error", "$Noun", *(sample.name for sample in samples)))
    text = module.fill("\n\n".join([TESTS, *(sample.test for sample in module.correct_functions)]))
    return text.replace("{names}", "\n".join(f"    {name}," for name in names))


def code_with_bug(sample: SampleFunction) -> str:
    """The function's code with the bug."""
    assert sample.good in sample.code, sample.name
    return sample.code.replace(sample.good, sample.bad)
