"""The measured parts of architecture.md: sizes of the packages, and the files that three operations pass through."""

import ast
import asyncio
import io
import json
import re
import sys
import tempfile
import threading
import tokenize
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any
from uuid import UUID

import minutebook
from minutebook import TokenBudgetManager, open_store, view_of
from minutebook.wire import provider_message_to_entry

PAGE = Path(__file__).with_name("architecture.md")
SOURCE = Path(minutebook.__file__).parent
FILES_MAY_DIFFER = 2
CHANGES_MAY_DIFFER = 0.2
"""Threads and the network make small differences from run to run; a page within these bounds is not changed."""
ROW = re.compile(r"^\| (?P<path>.*?) \| (?P<files>\d+) \| (?P<changes>\d+) \|$", re.MULTILINE)


def page() -> str:
    """The page with its two tables updated."""
    text = PAGE.read_text(encoding="utf-8")
    return between(between(text, "packages", package_table()), "paths", path_table(text))


def between(text: str, name: str, table: str) -> str:
    begin, end = f"<!-- {name}: written by make docs -->\n", f"<!-- end of {name} -->"
    assert begin in text, f"{PAGE.name} has no line {begin}"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}"


@dataclass(frozen=True)
class Module:
    name: str
    lines: int
    code: int

    @classmethod
    def of(cls, path: Path) -> "Module":
        text = path.read_text(encoding="utf-8")
        return cls(path.relative_to(SOURCE).as_posix(), len(text.splitlines()), len(code_lines(text)))


def code_lines(text: str) -> set[int]:
    """The numbers of the lines that are not blank, a comment or a docstring."""
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    numbers: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in blank:
            numbers.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            numbers.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return numbers


def package_table() -> str:
    packages: dict[str, list[Module]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).parts
        packages.setdefault(f"`{parts[0]}`" if len(parts) > 1 else "(root)", []).append(Module.of(path))
    rows = [package_row(name, modules) for name, modules in sorted(packages.items())]
    rows.append(package_row("**all**", [module for modules in packages.values() for module in modules]))
    head = "| package | files | lines | code lines | median module | longest module |\n|---|---|---|---|---|---|\n"
    return head + "".join(rows)


def package_row(name: str, modules: list[Module]) -> str:
    named = [module for module in modules if not module.name.endswith("__init__.py")] or modules
    middle = round(median(module.lines for module in named))
    longest = max(named, key=lambda module: module.lines)
    lines, code = sum(module.lines for module in modules), sum(module.code for module in modules)
    return f"| {name} | {len(modules)} | {lines:,} | {code:,} | {middle} | `{longest.name}`: {longest.lines} |\n"


@dataclass
class Trace:
    """Which files of the package execute a call while it is on, and how often the next call is in another file.

    It is installed before the threads of an operation start, because a thread takes its profile function when it
    starts. `testing` is left out: it plays the provider.
    """

    files: dict[str, None] = field(default_factory=dict)
    """In the order of their first call."""
    changes: int = 0
    on: bool = False
    _last: dict[int, str] = field(default_factory=dict)
    """Thread → the file of its last call."""

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        path = frame.f_code.co_filename
        if not self.on or event != "call" or not path.startswith(f"{SOURCE}/"):
            return
        name = path[len(f"{SOURCE}/") :]
        if name.startswith("testing/"):
            return
        thread = threading.get_ident()
        self.changes += self._last.get(thread, name) != name
        self._last[thread] = name
        self.files[name] = None

    @contextmanager
    def installed(self) -> Iterator["Trace"]:
        before, before_threads = sys.getprofile(), threading.getprofile()
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield self
        finally:
            sys.setprofile(before)
            threading.setprofile(before_threads)


async def second_run(operation: Callable[[int], Awaitable[object]], trace: Trace) -> None:
    """Trace an operation that has run before, so that imports and caches do not count."""
    await operation(0)
    trace.on = True
    try:
        await operation(1)
    finally:
        trace.on = False


def turns(count: int) -> list[dict[str, Any]]:
    """A system message and `count` turns of four messages with a tool call."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a support agent."}]
    for number in range(count):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "find_order", "arguments": "{}"}}
        messages += [
            {"role": "user", "content": f"Where is order {number}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "name": "find_order", "content": "In Bonn."},
            {"role": "assistant", "content": "It is in Bonn."},
        ]
    return messages


async def trace_view(trace: Trace) -> None:
    messages, manager = turns(3), TokenBudgetManager(100)

    async def make_view(_number: int) -> None:
        view_of(messages, manager)

    await second_run(make_view, trace)


async def trace_append(trace: Trace) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    entries = [
        provider_message_to_entry(message, evaluation_id=UUID(int=1), sequence=number, created_at=noon)
        for number, message in enumerate(turns(1)[:2])
    ]
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(f"sqlite:///{folder}/chat.db") as store:

            async def append(number: int) -> None:
                await store.append("order-17", [entries[number]])

            await second_run(append, trace)


async def trace_completion(trace: Trace) -> None:
    from minutebook.service.app import build_service, create_app
    from minutebook.service.config.loader import ConfigHolder
    from minutebook.testing import LoopbackProvider, ScriptedModel

    answer = "It is in Bonn."
    messages = [turns(1)[0], turns(1)[1], {"role": "assistant", "content": answer}, turns(2)[-4]]

    with tempfile.TemporaryDirectory() as folder, LoopbackProvider(ScriptedModel(otherwise=answer)) as provider:
        settings = {"MINUTEBOOK_DB": f"sqlite:///{folder}/chat.db", "MINUTEBOOK_UPSTREAM_URL": provider.base_url}
        service = build_service(ConfigHolder(None, environment=settings))
        app = create_app(service)
        async with service.store:

            async def complete(number: int) -> None:
                body = {"model": "gpt-4o", "stream": True, "messages": messages[: 2 * number + 2]}
                assert b"[DONE]" in await post(app, "/v1/chat/completions", body, conversation="order-17")

            await second_run(complete, trace)
            await service.upstream.close()


async def post(app: Any, path: str, body: dict[str, Any], *, conversation: str) -> bytes:
    """The body of the response, from the application itself: the HTTP server is not ours."""
    sent, received = asyncio.Event(), [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    chunks: list[bytes] = []

    async def receive() -> dict[str, Any]:
        if received:
            return received.pop()
        await sent.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        chunks.append(message.get("body", b""))
        if message["type"] == "http.response.body" and not message.get("more_body"):
            sent.set()

    headers = [
        (b"host", b"127.0.0.1"),
        (b"content-type", b"application/json"),
        (b"x-conversation-id", conversation.encode()),
    ]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    return b"".join(chunks)


PATHS = {
    "`view_of` with `TokenBudgetManager`": trace_view,
    "`store.append` on SQLite": trace_append,
    "a streamed chat completion, on SQLite": trace_completion,
}


@cache
def traced(name: str) -> Trace:
    """Trace one of `PATHS` in a separate thread, so that nothing else in this process is counted."""
    path = PATHS[name]
    with Trace().installed() as trace, ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(path(trace))).result()
    return trace


def path_table(written: str) -> str:
    """The numbers of the page if they are close enough, else the measured ones."""
    written_numbers = {match["path"]: (int(match["files"]), int(match["changes"])) for match in ROW.finditer(written)}
    rows = ["| operation | files | changes of file |\n|---|---|---|\n"]
    for name in PATHS:
        trace = traced(name)
        files, changes = written_numbers.get(name, (0, 0))
        if (
            abs(files - len(trace.files)) > FILES_MAY_DIFFER
            or abs(changes - trace.changes) > changes * CHANGES_MAY_DIFFER
        ):
            files, changes = len(trace.files), trace.changes
        rows.append(f"| {name} | {files} | {changes} |\n")
    return "".join(rows)


if __name__ == "__main__":
    for name in PATHS:
        trace = traced(name)
        sys.stdout.write(f"{name}: {len(trace.files)} files, {trace.changes} changes\n")
        sys.stdout.writelines(f"  {file}\n" for file in trace.files)
