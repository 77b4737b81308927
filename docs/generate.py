"""Writes the generated pages and the `.pyi` files: `python docs/generate.py`. A test fails if one is stale."""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Unpack, get_args, get_origin

import architecture
import sync_stub

import minutebook
from minutebook import errors
from minutebook.cli.reference import command_reference

HERE = Path(__file__).parent / "reference"
PACKAGES = {
    "record": "The record",
    "wire": "The wire",
    "tokens": "Tokens",
    "history": "History",
    "compaction": "Compaction",
    "store": "Stores",
    "conversation": "Conversations",
    "session": "Sessions",
    "prompt": "Prompts",
    "dsl": "The agent language",
    "planning": "Planning",
    "service": "The service",
    "agent": "Agents",
    "testing": "Parts for tests",
    "integrations.adk": "Google ADK",
}
"""Public package → its heading in the reference."""
RAISES = re.compile(r"^    (\w+):", re.MULTILINE)
HEAD = "<!-- Written by docs/generate.py from the docstrings; change those. -->\n"


def api() -> str:
    """One section for every public name: its signature, its docstring, its fields."""
    parts = [HEAD, "# The public names\n", "\nMost programs need only these, which `minutebook` itself exports: "]
    parts += [", ".join(f"`{name}`" for name in minutebook.__all__ if not name.startswith("_")), ".\n"]
    for name, title in PACKAGES.items():
        package = import_module(f"minutebook.{name}")
        parts.append(f"\n## {title}\n\n`minutebook.{name}`. {inspect.getdoc(package)}\n")
        if name != "integrations.adk":  # google-adk is not installed where the reference is written
            parts += [
                section(public_name, getattr(package, public_name))
                for names in package._EXPORTS.values()
                for public_name in names
            ]
    parts.append("\n## Errors\n\n`minutebook.errors`. Everything raised on purpose.\n")
    parts.append("\n```text\n" + "".join(error_tree(errors.MinutebookError)) + "```\n")
    error_classes = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)
    ]
    parts += [section(error_class.__name__, error_class) for error_class in error_classes]
    return "".join(parts)


def error_tree(error: type[BaseException], first: str = "", below: str = "") -> Iterator[str]:
    """A line for the error and for each subclass: its name, its built-in base class, and the first sentence about it."""
    other = ", ".join(base.__name__ for base in error.__bases__ if not issubclass(base, errors.MinutebookError))
    name = f"{first}{error.__name__}{f'({other})' if other and first else ''}"
    summary = re.split(r"[;.](?:\s|$)", inspect.getdoc(error) or "")[0]
    yield f"{name:<38}{summary}\n"
    subclasses = [subclass for subclass in error.__subclasses__() if subclass.__module__.startswith("minutebook.")]
    for subclass in subclasses:
        branch, indent = ("└── ", "    ") if subclass is subclasses[-1] else ("├── ", "│   ")
        yield from error_tree(subclass, f"{below}{branch}", f"{below}{indent}")


def section(name: str, value: object) -> str:
    value = inspect.unwrap(value) if callable(value) else value  # type: ignore[arg-type]
    doc = RAISES.sub(r"- raises `\1`:", (inspect.getdoc(value) or "").replace("\nRaises:\n", "\n"))
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        shown = type(value).__name__ if isinstance(value, tuple) else str(value).replace("typing.", "")
        return f"\n### `{name}`\n\n`{shown}`\n"
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
    """The parameters, with the options of a TypedDict (`**options: Unpack[…]`) one by one."""
    result: list[inspect.Parameter] = []
    for parameter in inspect.signature(value).parameters.values():  # type: ignore[arg-type]
        listed = get_args(parameter.annotation) if get_origin(parameter.annotation) is Unpack else ()
        names = listed[0].__annotations__ if listed else ()
        result += [parameter.replace(name=name, kind=parameter.KEYWORD_ONLY, default=None) for name in names] or [
            parameter
        ]
    return result


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
    """A line per attribute that has a string under it, which only the source shows."""
    if not inspect.isclass(value):
        return ""
    try:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(value)))
    except (OSError, TypeError, SyntaxError):
        return ""
    body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
    rows = []
    for node, after in pairwise(body):
        is_documented = (
            isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
        )
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and is_documented:
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
    from minutebook.service.app import build_service, create_app
    from minutebook.service.config.loader import CommandLineFlag, ConfigHolder

    flags = {
        "database.url": CommandLineFlag("here", "memory:"),
        "upstream.url": CommandLineFlag("here", "http://127.0.0.1:1"),
    }
    app = create_app(build_service(ConfigHolder(None, environment={}, flags=flags)))
    parts = [
        HEAD,
        "# The service over HTTP\n\n`/openapi.json` of a running service says all of it. Errors have one shape: ",
    ]
    parts.append('`{"error": {"message", "type", "param", "code"}}`.\n')
    rows: dict[str, list[str]] = {}
    for path, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            description = " ".join(operation.get("description", "").partition("\n\n")[0].split())
            rows.setdefault(operation["tags"][0], []).append(f"| `{method.upper()} {path}` | {description} |\n")
    for tag, tag_rows in rows.items():
        parts += [f"\n## {tag}\n\n| | |\n|---|---|\n", *tag_rows]
    return "".join(parts)


def stub(package: str) -> str:
    """The `.pyi` file of a package, for type checkers and editors: its names are imported on first use."""
    module = import_module(package)
    lines = [
        f"from {package}.{home} import (\n{''.join(f'    {name} as {name},' + chr(10) for name in sorted(names))})\n"
        for home, names in sorted(module._EXPORTS.items())
    ]
    names = "".join(f'    "{name}",\n' for name in module.__all__)
    version = "__version__: str\n" if package == "minutebook" else ""
    return f"{''.join(lines)}\n{version}__all__ = [\n{names}]\n"


PAGES = {
    HERE / "api.md": api,
    HERE / "cli.md": cli,
    HERE / "http.md": http,
    architecture.PAGE: architecture.page,
    sync_stub.PAGE: sync_stub.sync_stub,
    **{
        Path(import_module(package).__file__ or "").with_suffix(".pyi"): partial(stub, package)
        for package in ("minutebook", *(f"minutebook.{name}" for name in PACKAGES))
    },
}

if __name__ == "__main__":
    for page, make in PAGES.items():
        page.write_text(make(), encoding="utf-8")
        sys.stdout.write(f"wrote {page.relative_to(HERE.parents[1])}\n")
