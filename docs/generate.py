"""Writes the reference pages from the code they describe: `python docs/generate.py`. A test fails when they are stale."""

import ast
import inspect
import re
import sys
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import minutebook
from minutebook.cli.reference import command_reference

HERE = Path(__file__).parent / "reference"
TITLES = {
    "record": ("The record", "Messages, entries, exchanges, checking, repairing, the transcript, folds."),
    "wire": ("The wire", "Provider messages to entries and back."),
    "tokens": ("Tokens", "Counting, exactly and otherwise."),
    "history": ("History", "Managers, views, the guard, explanations."),
    "compaction": ("Compaction", "Strategies that fold old parts of a conversation, summaries, the ledger of facts."),
    "store": ("Stores", "Conversations that survive."),
    "session": ("Sessions", "State as typed slices, folded from events; the record; snapshots."),
    "prompt": ("Prompts", "Sections, templates, tools, and answers read into dataclasses."),
    "dsl": ("The agent language", "Reading, checking, printing and compiling programs."),
    "planning": ("Planning", "A plan that the model keeps, and a history organised by its steps."),
    "service": ("The service", "Its configuration, retention, and the application itself."),
    "agent": ("Agents", "Adapters, the loop that records everything, retries, deadlines, budgets, telemetry."),
    "errors": ("Errors", "Everything raised on purpose."),
}
RAISES = re.compile(r"^    (\w+):", re.MULTILINE)
HEAD = "<!-- Written by docs/generate.py from the docstrings; change those. -->\n"


def api() -> str:
    """One section for every public name: its signature, its docstring, its fields."""
    parts = [HEAD, "# The public names\n", "All of them are in `minutebook`: `from minutebook import Transcript`.\n"]
    for room, (title, what) in TITLES.items():
        parts.append(f"\n## {title}\n\n{what}\n")
        for home, names in minutebook._HOMES.items():
            if home.partition(".")[0] == room:
                parts += [section(name, getattr(minutebook, name)) for name in names]
    return "".join(parts)


def section(name: str, value: object) -> str:
    doc = RAISES.sub(r"- raises `\1`:", (inspect.getdoc(value) or "").replace("\nRaises:\n", "\n"))
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return f"\n### `{name}`\n\n`{str(value).replace('typing.', '')}`\n"
    return f"\n### `{name}{signature(value)}`\n\n{doc}\n{fields(value)}{methods(value)}"


def signature(value: object) -> str:
    if isinstance(value, type) and issubclass(value, Enum):
        return ""
    if isinstance(value, type) and issubclass(value, (BaseException, ModuleType)):
        return f"({', '.join(parameter for parameter in inspect.signature(value.__init__).parameters if parameter != 'self')})"
    try:
        return "(" + ", ".join(map(parameter_text, parameters(value))) + ")"
    except (TypeError, ValueError):
        return ""


def parameters(value: object) -> list[inspect.Parameter]:
    return list(inspect.signature(value).parameters.values())  # type: ignore[arg-type]


def parameter_text(parameter: inspect.Parameter) -> str:
    star = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = parameter.default
    if default is inspect.Parameter.empty:
        return star + parameter.name
    if isinstance(default, Enum):
        default = default.value
    shown = repr(default) if type(default) in {int, float, str, bool, tuple, type(None)} else "…"
    return f"{star}{parameter.name}={shown}"


def fields(value: object) -> str:
    """What the attributes mean: the string under each, which only the source has."""
    if not inspect.isclass(value):
        return ""
    try:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(value)))
    except (OSError, TypeError, SyntaxError):
        return ""
    body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
    rows = []
    for node, after in pairwise(body):
        said = (
            isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
        )
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and said:
            rows.append(f"- `{node.target.id}`: {' '.join(after.value.value.split())}\n")
    return "\n" + "".join(rows) if rows else ""


def methods(value: object) -> str:
    if not inspect.isclass(value) or issubclass(value, BaseException):
        return ""
    if issubclass(value, Enum):
        return "\n" + ", ".join(f"`{member.value}`" for member in value) + "\n"
    rows = []
    for name, member in sorted(vars(value).items()):
        target = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(target) or not inspect.getdoc(target):
            continue
        first = (inspect.getdoc(target) or "").partition("\n\n")[0].replace("\n", " ")
        call = "" if isinstance(member, property) else signature(target).replace("(self, ", "(").replace("(self)", "()")
        rows.append(f"- `{name}{call}`: {first}\n")
    return "\n" + "".join(rows) if rows else ""


def cli() -> str:
    return HEAD.replace("the docstrings", "the commands") + command_reference()


def http() -> str:
    """A row for every endpoint of the service."""
    from minutebook.service.app import create_app
    from minutebook.service.configfile import ConfigHolder, Flag
    from minutebook.service.opening import service_from

    nowhere = {"database.url": Flag("here", "memory:"), "upstream.url": Flag("here", "http://127.0.0.1:1")}
    app = create_app(service_from(ConfigHolder(None, environment={}, flags=nowhere)))
    parts = [
        HEAD,
        "# The service over HTTP\n\n`/openapi.json` of a running service says all of it. Errors have one shape: ",
    ]
    parts.append('`{"error": {"message", "type", "param", "code"}}`.\n')
    rows: dict[str, list[str]] = {}
    for path, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            said = " ".join(operation.get("description", "").partition("\n\n")[0].split())
            rows.setdefault(operation["tags"][0], []).append(f"| `{method.upper()} {path}` | {said} |\n")
    for tag, found in rows.items():
        parts += [f"\n## {tag}\n\n| | |\n|---|---|\n", *found]
    return "".join(parts)


def stub() -> str:
    """What type checkers and editors read in place of the names that load on first use."""
    lines = [
        f"from minutebook.{home} import (\n    {name} as {name},\n)\n"
        for home, name in sorted((home, name) for name, home in minutebook._HOME_OF.items())
    ]
    names = "".join(f'    "{name}",\n' for name in minutebook.__all__)
    return f"{''.join(lines)}\n__version__: str\n__all__ = [\n{names}]\n"


PAGES = {
    HERE / "api.md": api,
    HERE / "cli.md": cli,
    HERE / "http.md": http,
    Path(minutebook.__file__).with_suffix(".pyi"): stub,
}

if __name__ == "__main__":
    for page, make in PAGES.items():
        page.write_text(make(), encoding="utf-8")
        sys.stdout.write(f"wrote {page.name}\n")
