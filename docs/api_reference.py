"""The reference of the Python API: an overview, and a page per package with the signatures and docstrings of its public names.

Signatures are read from the source, so that `async`, types and defaults are shown as they are written.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import minutebook
from minutebook import errors

SOURCE = Path(minutebook.__file__ or "").parent
PACKAGES = {
    "conversation": "Conversations",
    "formats": "File formats",
    "history": "History managers and views",
    "compaction": "Compaction strategies",
    "record": "Messages, transcripts and folds",
    "wire": "Message formats",
    "tokens": "Tokens and models",
    "store": "Stores",
    "agent": "Agents",
    "prompt": "Prompts and tools",
    "session": "Sessions",
    "planning": "Planning",
    "dsl": "The agent language",
    "service": "The service",
    "lab": "Replaying sessions",
    "testing": "Testing",
    "integrations.adk": "Google ADK",
    "errors": "Errors",
}
"""Public package or module → its title, in the order of the overview."""
HEAD = "<!-- Written by docs/generate.py from the docstrings; change those. -->\n"
RAISES = re.compile(r"^    (\w+):", re.MULTILINE)
LINE = 100
_HANDLE = "minutebook.conversation.handle"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Definition:
    """A name in the source: the statement that defines it, and the module of that statement."""

    node: ast.stmt
    module: str
    doc: str = ""
    """The string below an assignment."""


def overview() -> str:
    """The names of the root, each with a sentence and a link to its package, and the packages."""
    parts = [
        HEAD,
        "# Python API\n\n`minutebook` exports the names that most programs need. Every package exports more.\n",
    ]
    parts.append("\n| package | contents |\n|---|---|\n")
    parts += [f"| [`minutebook.{name}`](api/{name}.md) | {title} |\n" for name, title in PACKAGES.items()]
    parts.append("\n## Names in `minutebook`\n\n| name | |\n|---|---|\n")
    homes = {name: home for home, names in minutebook._EXPORTS.items() for name in names}
    for name, home in sorted(homes.items(), key=lambda item: item[0].lower()):
        parts.append(f"| [`{name}`](api/{home}.md#{anchor(name)}) | {first_sentence(doc_of(find(home, name)))} |\n")
    return "".join(parts)


def package_page(package: str) -> str:
    names = public_names(package)
    about = inspect.getdoc(import_module(f"minutebook.{package}")) or ""
    parts = [HEAD, f"# {PACKAGES[package]}\n\n```py\nfrom minutebook.{package} import …\n```\n\n"]
    parts.append("\n\n".join(paragraph for paragraph in about.split("\n\n") if "Start with" not in paragraph) + "\n")
    if package == "errors":
        parts.append("\n```text\n" + "".join(error_tree(errors.MinutebookError)) + "```\n")
    parts += [section(name, find(package, name)) for name in sorted(names, key=str.lower)]
    return "".join(parts)


def public_names(package: str) -> list[str]:
    module = import_module(f"minutebook.{package}")
    if package == "errors":
        return [name for name, value in vars(module).items() if inspect.isclass(value) and issubclass(value, Exception)]
    return [name for names in module._EXPORTS.values() for name in names]


def find(package: str, name: str) -> Definition:
    """The definition of a public name."""
    exports = getattr(import_module(f"minutebook.{package}"), "_EXPORTS", {})
    home = next((f"{package}.{module}" for module, names in exports.items() if name in names), package)
    return resolve(f"minutebook.{home}", name)


@cache
def resolve(module: str, name: str) -> Definition:
    """The definition of a name in a module; imports within the package are followed.

    Raises:
        LookupError: the module does not define the name.
    """
    body = syntax_tree(module).body
    for index, node in enumerate(body):
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            if isinstance(node, ast.ClassDef) and (module, name) == (f"{_HANDLE}.sync_conversation", "Conversation"):
                return Definition(_sync_class(), f"{_HANDLE}.async_conversation")
            return Definition(node, module)
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in target_names(node):
            after = body[index + 1] if index + 1 < len(body) else None
            return Definition(node, module, string_of(after))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("minutebook"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return resolve(node.module or "", alias.name)
    if SOURCE.parent.joinpath(*module.split(".")).is_dir():
        exports = import_module(module)._EXPORTS
        home = next(home for home, names in exports.items() if name in names)
        return resolve(f"{module}.{home}", name)
    raise LookupError(f"{module}.{name}")


@cache
def syntax_tree(module: str, suffix: str = ".py") -> ast.Module:
    path = SOURCE.parent.joinpath(*module.split("."))
    path = path / f"__init__{suffix}" if path.is_dir() else path.with_suffix(suffix)
    return ast.parse(path.read_text(encoding="utf-8"))


def _sync_class() -> ast.ClassDef:
    """`Conversation` with the signatures of its stub and the docstrings of `AsyncConversation`."""
    stub = syntax_tree(f"{_HANDLE}.sync_conversation", ".pyi")
    result = next(node for node in stub.body if isinstance(node, ast.ClassDef))
    original = resolve(f"{_HANDLE}.async_conversation", "AsyncConversation").node
    assert isinstance(original, ast.ClassDef)
    docs = {node.name: ast.get_docstring(node) for node in original.body if isinstance(node, Function)}
    for node in result.body:
        if isinstance(node, Function) and docs.get(node.name):
            node.body = [ast.Expr(ast.Constant(docs[node.name]))]
    about = (ast.get_docstring(original) or "").replace("async with", "with")
    result.body.insert(0, ast.Expr(ast.Constant(about + "\n\nIn async code, use `AsyncConversation`.")))
    return result


def section(name: str, definition: Definition) -> str:
    node = definition.node
    parts = [f"\n## `{name}`\n\n", fence(declaration(name, definition)), f"\n{doc_of(definition)}\n"]
    if isinstance(node, ast.ClassDef):
        parts += [attributes(definition), *methods(name, definition)]
    return "".join(parts)


def anchor(name: str) -> str:
    return name.lower()


def fence(code: str) -> str:
    return f"```py\n{code}\n```\n"


def doc_of(definition: Definition) -> str:
    node = definition.node
    doc = ast.get_docstring(node) if isinstance(node, ast.ClassDef | Function) else definition.doc
    return RAISES.sub(r"- raises `\1`:", (doc or "").replace("\nRaises:\n", "\n"))


def first_sentence(doc: str) -> str:
    paragraph = " ".join(doc.partition("\n\n")[0].split())
    return re.split(r"(?<=[.])\s", paragraph)[0].replace("|", "\\|")


def declaration(name: str, definition: Definition) -> str:
    node = definition.node
    if isinstance(node, Function):
        return function_text(node, name)
    if not isinstance(node, ast.ClassDef):
        return ast.unparse(node)
    lines = [
        f"@{ast.unparse(decorator)}\n" for decorator in node.decorator_list if "dataclass" in ast.unparse(decorator)
    ]
    bases = ", ".join(map(ast.unparse, node.bases))
    init = constructor(definition)
    head = f"class {name}" + (f"({bases})" if bases else "")
    return "".join(lines) + head + (f":\n{indented(init)}" if init else "")


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def constructor(definition: Definition) -> str:
    """The constructor of a class, or the fields of a dataclass, enum or typed dict."""
    for ancestor in ancestors(definition):
        assert isinstance(ancestor.node, ast.ClassDef)
        found = [node for node in ancestor.node.body if isinstance(node, Function) and node.name == "__init__"]
        if found:
            return function_text(found[0], "__init__")
        if any("dataclass" in ast.unparse(decorator) for decorator in ancestor.node.decorator_list):
            break
    assignments = (
        node
        for ancestor in reversed(list(ancestors(definition)))
        for node in class_body(ancestor)
        if isinstance(node, ast.AnnAssign | ast.Assign)
        and "ClassVar" not in ast.unparse(node)
        and not any(name.startswith("_") for name in target_names(node))
    )
    return "\n".join(map(ast.unparse, assignments))


def ancestors(definition: Definition) -> Iterator[Definition]:
    """The class and its base classes in the package, nearest first."""
    yield definition
    assert isinstance(definition.node, ast.ClassDef)
    for base in definition.node.bases:
        name = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(name, ast.Name):
            try:
                found = resolve(definition.module, name.id)
            except LookupError:
                continue
            if isinstance(found.node, ast.ClassDef):
                yield from ancestors(found)


def function_text(node: Function, name: str) -> str:
    """The signature of a function, on several lines if it is long."""
    prefix = "async def " if isinstance(node, ast.AsyncFunctionDef) else "def "
    lines = [f"@{ast.unparse(item)}\n" for item in node.decorator_list if getattr(item, "id", "") in SHOWN_DECORATORS]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    text = f"{prefix}{name}({ast.unparse(node.args)}){returns}"
    if len(text) > LINE:
        rows = "".join(f"    {argument},\n" for argument in arguments(node.args))
        text = f"{prefix}{name}(\n{rows}){returns}"
    return "".join(lines) + text


SHOWN_DECORATORS = {"property", "classmethod", "staticmethod", "asynccontextmanager", "contextmanager"}


def arguments(given: ast.arguments) -> list[str]:
    """Each parameter as it is written, with its type and default."""
    rows = []
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    for index, (argument, default) in enumerate(zip(positional, defaults, strict=True), start=1):
        rows.append(parameter(argument, default))
        if index == len(given.posonlyargs):
            rows.append("/")
    if given.vararg:
        rows.append(f"*{parameter(given.vararg, None)}")
    elif given.kwonlyargs:
        rows.append("*")
    rows += [
        parameter(argument, default) for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        rows.append(f"**{parameter(given.kwarg, None)}")
    return rows


def parameter(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    equals = " = " if annotation else "="
    return f"{argument.arg}{annotation}" + (f"{equals}{ast.unparse(default)}" if default is not None else "")


def attributes(definition: Definition) -> str:
    """A line per attribute that has a string below it."""
    rows = []
    for ancestor in reversed(list(ancestors(definition))):
        for node, after in pairwise(class_body(ancestor)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and string_of(after):
                rows.append(f"- `{node.target.id}`: {' '.join(string_of(after).split())}\n")
    return "\n" + "".join(rows) if rows else ""


def methods(name: str, definition: Definition) -> Iterator[str]:
    """The public methods of the class itself that have a docstring, and a link to its public base class."""
    for node in class_body(definition):
        doc = doc_of(Definition(node, definition.module)) if isinstance(node, Function) else ""
        if isinstance(node, Function) and doc and not node.name.startswith("_"):
            yield f"\n### `{name}.{node.name}`\n\n{fence(function_text(node, node.name))}\n{doc}\n"
    for ancestor in list(ancestors(definition))[1:]:
        base = ancestor.node.name  # type: ignore[attr-defined]
        if (home := public_classes().get((ancestor.module, base))) is not None:
            yield f"\n`{name}` also has the methods of [`{base}`]({home}.md#{anchor(base)}).\n"
            return


def class_body(definition: Definition) -> list[ast.stmt]:
    assert isinstance(definition.node, ast.ClassDef)
    return definition.node.body


@cache
def public_classes() -> dict[tuple[str, str], str]:
    """Module and name of every public class → the page that describes it."""
    found = {}
    for package in PACKAGES:
        for name in public_names(package):
            definition = find(package, name)
            if isinstance(definition.node, ast.ClassDef):
                found[definition.module, definition.node.name] = package
    return found


def target_names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
    return [target.id for target in targets if isinstance(target, ast.Name)]


def string_of(node: ast.stmt | None) -> str:
    """The text of a statement that is only a string."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return inspect.cleandoc(node.value.value)
    return ""


def error_tree(error: type[BaseException], first: str = "", below: str = "") -> Iterator[str]:
    """A line for the error and for each subclass: its name, its built-in base class, and the first sentence about it."""
    other = ", ".join(base.__name__ for base in error.__bases__ if not issubclass(base, errors.MinutebookError))
    name = f"{first}{error.__name__}{f'({other})' if other and first else ''}"
    summary = re.split(r"[;.](?:\s|$)", inspect.getdoc(error) or "")[0]
    yield f"{name:<38}{summary}\n"
    # Others, such as those of `minutebook.testing`, are subclasses only once their module is imported.
    subclasses = [subclass for subclass in error.__subclasses__() if subclass.__module__ == errors.__name__]
    for subclass in subclasses:
        branch, indent = ("└── ", "    ") if subclass is subclasses[-1] else ("├── ", "│   ")
        yield from error_tree(subclass, f"{below}{branch}", f"{below}{indent}")
