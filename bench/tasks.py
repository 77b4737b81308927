"""The length of the twelve tasks in `examples/tasks`, compared with the best other library for each.

A line is a statement, or the head of a block; imports, docstrings and what every variant needs (the provider's client, the
adapter, the web application, the call of `main`) are not counted. Names are those imported from minutebook.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.report import Part, Table, Target

FOLDER = Path(__file__).parents[1] / "examples" / "tasks"
MAX_NAMES = 5
GIVEN = frozenset({"client", "app", "adapter"})
"""Names whose assignment is not counted."""


@dataclass(frozen=True)
class Peer:
    """The best other library for a task, with the lines and the concepts that the task needs with it."""

    name: str
    lines: int | None
    concepts: int | None
    remark: str = ""


@dataclass(frozen=True)
class Task:
    title: str
    max_lines: int
    """The length of the design's sketch, which is the maximum."""
    peer: Peer


TASKS = {
    1: Task("messages that fit a budget", 1, Peer("LangChain trim_messages", 2, 5)),
    2: Task("the same with the anthropic client", 1, Peer("by hand", 7, 1)),
    3: Task("chat on SQLite, resumed, within the window", 5, Peer("sqlite3 + trim_messages", 14, 3)),
    4: Task("the same async and streamed", 7, Peer("openai-agents", 13, 5, "limit by items only")),
    5: Task("own tool loop, 60 calls in 8k tokens", 8, Peer("LangChain ContextEditing", 6, 4)),
    6: Task("the same with our loop, events printed", 3, Peer("pydantic-ai", 25, 6)),
    7: Task("summarize at 80 %, look at folds, undo", 5, Peer("LangChain SummarizationMiddleware", 10, 5, "no undo")),
    8: Task("own manager and own strategy", 8, Peer("LangChain middleware", 9, 3, "no strategy")),
    9: Task("web application, SSE, 30 days, erase", 8, Peer("langgraph + Postgres", 28, 6, "no expiry")),
    10: Task("why was message 17 not sent", 1, Peer("langgraph", None, None, "not recorded")),
    11: Task("plan whose finished steps are summarized", 2, Peer("by hand", 18, 2)),
    12: Task("service before a provider", 1, Peer("-", None, None)),
}


@dataclass(frozen=True)
class Size:
    lines: int
    names: tuple[str, ...]
    """Names that are imported from minutebook."""


def measure(*, quick: bool) -> Part:  # noqa: ARG001 - the signature of all parts
    part = Part()
    table = Table(
        "Twelve tasks: lines and names to import", ["task", "lines", "at most", "names", "best peer", "lines"]
    )
    sizes = {number: size_of(path_of(number)) for number in TASKS}
    for number, task in TASKS.items():
        size, peer = sizes[number], task.peer
        figures = "-" if peer.lines is None else f"{peer.lines} / {peer.concepts} concepts"
        remark = f" ({peer.remark})" if peer.remark else ""
        row = [f"{number}. {task.title}", str(size.lines), str(task.max_lines), str(len(size.names))]
        table.rows.append([*row, f"{peer.name}{remark}", figures])
    names = sorted({name for size in sizes.values() for name in size.names})
    table.notes.append("A line of ours is a statement; imports and the client are not counted.")
    table.notes.append(f"{len(names)} names in all: {', '.join(names)}")
    part.tables.append(table)
    too_long = [number for number, task in TASKS.items() if sizes[number].lines > task.max_lines]
    many_names = [number for number, size in sizes.items() if len(size.names) > MAX_NAMES]
    part.targets = [
        Target("no task is longer than its sketch", f"longer: {too_long or 'none'}", not too_long),
        Target(f"no task needs more than {MAX_NAMES} names", f"more: {many_names or 'none'}", not many_names),
    ]
    part.figures = {str(number): {"lines": size.lines, "names": size.names} for number, size in sizes.items()}
    return part


def path_of(number: int) -> Path:
    """The file of a task."""
    (path,) = FOLDER.glob(f"{number:02}_*")
    return path


def size_of(path: Path) -> Size:
    """The number of lines and the imported names of a task."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sh":
        return Size(sum(bool(line.strip()) and not line.startswith("#") for line in text.splitlines()), ())
    tree = ast.parse(text)
    return Size(sum(_count(tree.body)), tuple(_imported_names(tree)))


def _imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "minutebook":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "minutebook")


def _count(statements: Iterable[ast.stmt]) -> Iterator[int]:
    for statement in statements:
        if isinstance(statement, (ast.Import, ast.ImportFrom)) or _is_docstring(statement) or _is_given(statement):
            continue
        is_main = isinstance(statement, ast.AsyncFunctionDef) and statement.name == "main"
        yield 0 if is_main else 1 + len(getattr(statement, "decorator_list", ()))
        for block in ("body", "orelse", "finalbody"):
            yield from _count(getattr(statement, block, ()))


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_given(statement: ast.stmt) -> bool:
    """Whether it makes a client, the adapter or the application, or calls `main`."""
    if isinstance(statement, ast.If):
        return ast.unparse(statement.test) == "__name__ == '__main__'"
    if not isinstance(statement, ast.Assign):
        return False
    return {target.id for target in statement.targets if isinstance(target, ast.Name)} <= GIVEN
