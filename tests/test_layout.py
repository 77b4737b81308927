"""The rules of the package layout: how large a folder may be, how a module and a class may be named, and no import cycles.

Directions of imports between packages are in `pyproject.toml` (import-linter). `layout.toml` has the words that a module may
have in its name; a test fails when one is no longer needed.
"""

import ast
import re
import tomllib
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

import minutebook

SOURCE = Path(minutebook.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
FOLDERS = sorted({path.parent for path in MODULES})

MOST_MODULES = 15
UNLIMITED = frozenset({"cli/commands", "scripts"})
"""Folders with one file per command or script, however many there are. A name without a slash is any folder so named."""

LISTS = tomllib.loads(Path(__file__).with_name("layout.toml").read_text(encoding="utf-8"))
NOUNS = LISTS["accepted_words"]
IRREGULAR = frozenset(LISTS["words"]["irregular_participles"].split())


def shown(path):
    return path.relative_to(SOURCE).as_posix()


def dotted(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def modules_in(folder):
    return [path for path in MODULES if path.parent == folder and path.stem != "__init__"]


def test_no_folder_has_more_modules_than_a_reader_can_survey():
    sizes = {shown(folder): len(modules_in(folder)) for folder in FOLDERS}
    large = {
        name: size
        for name, size in sizes.items()
        if size > MOST_MODULES and name not in UNLIMITED and Path(name).name not in UNLIMITED
    }

    assert large == {}, f"more than {MOST_MODULES} modules: put those that belong together into a folder of their own"


def test_every_folder_with_modules_is_a_package_that_says_what_it_is():
    missing = [shown(folder) for folder in FOLDERS if not (folder / "__init__.py").exists()]
    silent = [shown(path) for path in MODULES if path.stem == "__init__" and not ast.get_docstring(parsed(path))]

    assert missing == [], f"add an __init__.py with a docstring to {', '.join(missing)}"
    assert silent == [], f"add a docstring to {', '.join(silent)}: what is in the package, and where to start reading"


def test_no_file_repeats_the_name_of_its_folder():
    def forms(word):
        return {word, f"{word}s", word.removesuffix("s")}

    repeated = [
        shown(path)
        for path in SOURCE.rglob("*")
        if path.is_file() and path.parent != SOURCE and path.stem != "__init__" and "__pycache__" not in path.parts
        if forms(path.parent.name) & {path.stem, *path.stem.split("_")}
    ]

    assert repeated == [], f"leave the folder's name out of {', '.join(repeated)}"


def participle(name):
    """Whether a word of a module's name is a participle or a gerund."""
    words = name.strip("_").split("_")
    return any(word in IRREGULAR or (re.search("(ing|[^e]ed)$", word) and word not in NOUNS) for word in words)


def names():
    """Every module and package, by the word that names it."""
    return {shown(path): path.stem for path in MODULES if path.stem != "__init__"} | {
        shown(folder): folder.name for folder in FOLDERS if folder != SOURCE
    }


def test_every_module_is_named_by_a_noun():
    found = sorted(path for path, name in names().items() if participle(name))

    assert found == [], (
        f"participles or gerunds: name these by a noun, or add the word to accepted_words in layout.toml: {found}"
    )


def has_effects(node):
    """Whether a node is an async function, or a function that returns nothing."""
    is_void = (
        isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Constant) and node.returns.value is None
    )
    return is_void or isinstance(node, ast.AsyncFunctionDef)


def test_a_function_with_effects_is_named_by_a_verb():
    """Its name starts with an imperative, never with a participle."""
    found = [
        f"{shown(path)}: {node.name}"
        for path in MODULES
        for node in ast.walk(parsed(path))
        if has_effects(node) and participle(node.name.strip("_").split("_")[0])
    ]

    assert found == [], f"name these by what they do: {found}"


def test_every_accepted_word_names_a_module():
    used = {word for name in names().values() for word in name.split("_")}
    gone = sorted(NOUNS.keys() - used)

    assert gone == [], f"no module has this name; remove from accepted_words in layout.toml: {', '.join(gone)}"


def test_one_class_name_has_one_meaning():
    homes = defaultdict(list)
    for path in MODULES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(shown(path))
    twice = {name: places for name, places in homes.items() if len(places) > 1}

    assert twice == {}, f"these class names are defined more than once: {twice}"


KNOWN = {dotted(path) for path in MODULES}
LAZY = {dotted(path) for path in MODULES if path.stem == "__init__" and path.with_suffix(".pyi").exists()}
"""Packages whose names load on first use."""


def imported(path):
    """The modules of ours that must be loaded before the body of this one has run."""
    package = dotted(path) if path.stem == "__init__" else dotted(path).rpartition(".")[0]

    def home(module, name):
        """Where a name is defined: a submodule, or the module behind a name that its package loads on first use."""
        if f"{module}.{name}" in KNOWN:
            return f"{module}.{name}"
        lazy = import_module(module)._EXPORTS if module in LAZY else {}
        inner = next((inner for inner, names in lazy.items() if name in names), None)
        return module if inner is None else home(f"{module}.{inner}", name)

    def found(statements):
        for node in statements:
            match node:
                case ast.Import():
                    yield from (alias.name for alias in node.names if alias.name in KNOWN)
                case ast.ImportFrom():
                    base = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
                    module = ".".join([*base, *filter(None, [node.module])])
                    yield from (home(module, alias.name) for alias in node.names if module in KNOWN)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    pass  # runs later
                case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                    yield from found(node.orelse)
                case _:
                    yield from found(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))

    return sorted(set(found(parsed(path).body)) - {dotted(path)})


def cycle_in(graph):
    """The first cycle, as a list that ends where it begins, or an empty one."""
    done = set()

    def visit(module, trail):
        if module in trail:
            return [*trail[trail.index(module) :], module]
        if module in done:
            return []
        for target in graph.get(module, ()):
            if cycle := visit(target, [*trail, module]):
                return cycle
        done.add(module)
        return []

    return next(filter(None, (visit(module, []) for module in graph)), [])


@pytest.fixture(scope="module")
def graph():
    return {dotted(path): imported(path) for path in MODULES}


def test_no_modules_import_each_other_in_a_circle(graph):
    cycle = cycle_in(graph)

    assert cycle == [], f"import cycle: {' -> '.join(cycle)}; move what both need into a module below them"


def test_imports_are_found_behind_names_that_load_on_first_use(graph):
    assert "minutebook.tokens.counter" in graph["minutebook.history.view"]
    assert cycle_in({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]


def test_the_root_exports_nothing_of_other_frameworks():
    assert [module for module in minutebook._EXPORTS if module.startswith("integrations")] == [], (
        "`import minutebook` never needs another framework: import it from minutebook.integrations"
    )
