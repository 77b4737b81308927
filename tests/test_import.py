"""What `import minutebook` loads, and that every public name is there and explained."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import minutebook

HEAVY = {"asyncio", "click", "rich", "splintr", "tiktoken", "dataclasses", "typing_extensions", "json", "re", "uuid"}
REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


def loaded_by(statement):
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] if not name.startswith("minutebook") else name for name in done.stdout.split()}


def test_importing_minutebook_loads_nothing_heavy():
    loaded = loaded_by("import minutebook")

    assert loaded.isdisjoint(HEAVY)
    assert {name for name in loaded if name.startswith("minutebook")} == {"minutebook"}


def test_the_managers_need_no_library_of_ours_or_others():
    loaded = loaded_by("import minutebook; minutebook.TokenBudgetManager; minutebook.check; minutebook.view_of")

    assert loaded.isdisjoint({"asyncio", "click", "rich", "splintr", "tiktoken", "httpx"})


@pytest.mark.parametrize("name", minutebook.__all__)
def test_every_public_name_resolves_and_has_a_docstring(name):
    value = getattr(minutebook, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert inspect.getdoc(value), f"{name} has no docstring"


def test_every_public_name_has_its_place_in_the_docs():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))

    assert [name for name in minutebook.__all__ if f"`{name}" not in pages and not name.startswith("_")] == []


def test_type_checkers_see_the_same_names():
    stub = ast.parse(Path(minutebook.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imported = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}

    assert imported == set(minutebook.__all__) - {"__version__"}
    assert set(minutebook.__all__) <= set(dir(minutebook))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        minutebook.Nonsense  # noqa: B018 - looking is the point
