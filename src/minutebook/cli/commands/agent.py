"""`minutebook agent`: programs of the agent language.

A run of an agent program at the command line: the answer to stdout, what happens on the way to stderr.
"""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from minutebook.agent.events import AnswerRestarted, ToolAnswered, ToolCalled
from minutebook.agent.mcp import McpProcess, McpServer, ToolOrigin
from minutebook.agent.messages import TextDelta
from minutebook.cli.chat.display import asking_again, shown
from minutebook.cli.exits import FINDINGS, INVALID, Command
from minutebook.cli.files import replace_file
from minutebook.cli.interrupts import Stops
from minutebook.cli.options import emit, flag, is_json, json_option
from minutebook.cli.screen import one_line
from minutebook.compaction.manager import HistoryCompacted
from minutebook.compaction.registry import strategy_names
from minutebook.dsl.agents import AgentEvent, WorkflowFinished
from minutebook.dsl.checks.program import check_agents
from minutebook.dsl.checks.scope import STRATEGIES
from minutebook.dsl.compiler import compile_agents
from minutebook.dsl.diagnostics import Diagnostic, errors_in
from minutebook.dsl.formatter import format_agents
from minutebook.dsl.models import provider_adapters
from minutebook.dsl.parser import parsed
from minutebook.dsl.syntax import Program
from minutebook.dsl.workflow import DslWorkflow
from minutebook.errors import InvalidSetting, UnreadableInput
from minutebook.prompt.markdown import shown as text_of
from minutebook.prompt.schema import dump
from minutebook.record.finding import Severity


@click.group("agent", short_help="Check, format and run agent programs.")
def command() -> None:
    """Check, format and run programs of the agent language.

    Example: minutebook agent check reviewer.sr
    """


@command.command("check", cls=Command, short_help="What is wrong with a program.")
@click.argument("files", metavar="FILE.sr|-…", nargs=-1, required=True)
@json_option("Print one JSON document: the diagnostics of all files, and a summary. Example: --json")
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help="A history strategy that whoever runs the program registers. Example: --strategy my_own",
)
@click.option(
    "--external",
    "externals",
    multiple=True,
    metavar="NAME",
    help="A server of tools that whoever runs the program brings, for names such as mcp.read_file. Example: --external mcp",
)
def check(files: Sequence[str], strategies: Sequence[str], externals: Sequence[str]) -> int:
    """Say what is wrong with each FILE, with the line and a caret under the place.

    Nothing is run and nothing is fetched. The exit code is 6 when there are errors and 0 when there are none: warnings
    alone are 0.

    Example: minutebook agent check agents/reviewer.sr --external mcp
    """
    found = [each for file in files for each in _diagnosed(file, _read(file), strategies, externals)[1]]
    errors = len(errors_in(found))
    tally = {"files": len(files), "errors": errors, "warnings": len(found) - errors}
    counts = ", ".join(f"{count} {name if count != 1 else name[:-1]}" for name, count in tally.items())
    if not is_json():
        _print(found, err=False)
    emit({"diagnostics": [each.as_json() for each in found], "summary": tally}, counts)
    return FINDINGS if errors else 0


@command.command("fmt", cls=Command, short_help="Write programs in their one form.")
@click.argument("files", metavar="FILE.sr|-…", nargs=-1, required=True)
@flag(
    "--check",
    "only_check",
    help_text="Write nothing; name the files that would change, and end with 6 if there are any. Example: minutebook agent fmt --check a.sr",
)
def fmt(files: Sequence[str], only_check: bool) -> int:
    """Write each FILE in the one form of the language; - reads stdin and prints.

    Comments stay, and so does what the program means. A file is replaced in one step, and only if it changes. One with
    errors is left alone: its errors are shown, and the exit code is 5.

    Example: minutebook agent fmt agents/reviewer.sr
    """
    broken, changed = False, []
    for file in files:
        before = _read(file)
        program, found = _diagnosed(file, before, (), ())
        # Which strategies are registered is nothing that the form of a program depends on.
        errors = [each for each in errors_in(found) if each.code != "unknown-strategy"]
        if program is None or errors:
            _print(errors, err=True)
            broken = True
            continue
        after = format_agents(program)
        if after != before:
            changed.append(file)
        if not only_check:
            _write(file, before, after)
    for file in changed:
        if only_check or file != "-":
            click.echo(f"{'would change' if only_check else 'changed'} {file}", err=True)
    if broken:
        return INVALID
    return FINDINGS if changed and only_check else 0


@command.command("run", cls=Command, short_help="Run a program.")
@click.argument("file", metavar="FILE.sr|-")
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@click.option(
    "--base-url", metavar="URL",
    help="A server that speaks as the providers do, for all models of the program; without a key in the environment it "
    "is sent the key 'none'. Example: --base-url http://127.0.0.1:8080/v1",
)  # fmt: skip
@click.option("--agent", metavar="NAME", help="Begin with this agent. Example: --agent code_reviewer")
@click.option("--flow", metavar="NAME", help="Begin with this flow. Example: --flow nightly")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="A value for a parameter of the flow; JSON, or else text. Example: --set files='[\"a.py\"]'",
)  # fmt: skip
@click.option(
    "--external", "externals", multiple=True, metavar="NAME=URL|COMMAND",
    help="The MCP server for tools that the program names and does not define. "
    "Example: --external mcp='notes-server --root .'",
)  # fmt: skip
@json_option("Print one JSON document: the answer, and the notices on the way to it. Example: --json")
def run(
    file: str,
    prompt: str | None,
    base_url: str | None,
    agent: str | None,
    flow: str | None,
    settings: Sequence[str],
    externals: Sequence[str],
) -> None:
    """Run the program in FILE, and print its answer to PROMPT.

    The answer goes to stdout as it comes. What agents do on the way, and where a history was shortened, goes to stderr.
    - reads PROMPT from stdin. Agents see the files of the working folder, and Python tools are imported from there.

    Keys are read from the environment: OPENAI_API_KEY, ANTHROPIC_API_KEY. Another provider speaks as OpenAI does, at the
    address in PROVIDER_BASE_URL, with the key in PROVIDER_API_KEY.

    Example: minutebook agent run agents/reviewer.sr "Review src/app.py."
    """
    if file == "-" and prompt == "-":
        raise click.UsageError("FILE and PROMPT cannot both be read from stdin.")
    text = _read(file)
    given = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\n") if prompt == "-" else prompt or ""
    brought = dict(map(_external, externals))
    spec = compile_agents(text, source=_name(file), strategies=strategy_names(), externals=tuple(brought))
    if os.getcwd() not in sys.path:  # noqa: PTH109 - what stands in the path is text
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - same
    streams = flow is None and (agent is not None or (spec.entry is not None and spec.entry.kind == "agent"))
    telling = _Telling(streams=streams and not is_json())

    async def work() -> Any:
        result = None
        async with DslWorkflow(spec, adapters=provider_adapters(base_url=base_url), externals=brought) as workflow:
            async for event in workflow.stream(given, agent=agent, flow=flow, values=dict(map(_setting, settings))):
                if isinstance(event, WorkflowFinished):
                    result = event.result
                else:
                    telling.hear(event)
        return result

    with Stops() as stops:
        try:
            result = stops.run(work())
        finally:
            telling.end()
    emit(
        {"result": dump(result), "notices": telling.notices},
        lambda: None if telling.spoke else click.echo(shown(text_of(result))),
    )


def _name(file: str) -> str:
    return "stdin" if file == "-" else file


def _read(file: str) -> str:
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UnreadableInput(_name(file), f"not UTF-8 ({error.reason})", line) from None


def _diagnosed(
    file: str, text: str, strategies: Sequence[str], externals: Sequence[str]
) -> "tuple[Program | None, tuple[Diagnostic, ...]]":
    program, found = parsed(text, source=_name(file))
    if program is None:
        return None, found
    return program, check_agents(program, strategies=(*STRATEGIES, *strategies), externals=externals)


def _write(file: str, before: str, after: str) -> None:
    if file == "-":
        click.echo(after, nl=False)
    elif after != before:
        replace_file(Path(file).resolve(), [after.encode()], gzipped=False)


def _print(found: Sequence[Diagnostic], *, err: bool) -> None:
    for each in found:
        head, *excerpt = str(each).split("\n")
        colour = "red" if each.severity is Severity.ERROR else "yellow"
        place, severity, rest = head.partition(f"{each.severity.value}[")
        click.echo(f"{place}{click.style(each.severity.value, fg=colour)}{severity[-1:]}{rest}", err=err)
        for line in excerpt:
            click.echo(line, err=err)


_LONGEST = 100
"""Characters of a tool's arguments or result that a line shows."""


class _Telling:
    """Shows a run as it goes."""

    def __init__(self, *, streams: bool) -> None:
        self._streams = streams
        self.notices: list[str] = []
        self.spoke = False
        self._open = False

    def hear(self, event: AgentEvent) -> None:
        match event.event:
            case TextDelta(text) if self._streams and not event.depth:
                click.echo(shown(text), nl=False)
                self.spoke = self._open = True
            case HistoryCompacted() as compacted:
                self.notices.append(compacted.notice)
                self._note(event, compacted.notice)
            case ToolCalled(call):
                self._note(event, f"→ {call.name} {_short(call.arguments)}")
            case ToolAnswered(call, content, success):
                self._note(event, f"{'←' if success else '✗'} {call.name} {_short(content)}")
            case AnswerRestarted(problem):
                self._note(event, asking_again(problem))
            case _:
                pass

    def end(self) -> None:
        """Leave the cursor at the beginning of a line."""
        if self._open:
            click.echo()
            self._open = False

    def _note(self, event: AgentEvent, text: str) -> None:
        self.end()
        click.echo(click.style(f"{event.name or 'agent'}: {text}", dim=True), err=True)


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidSetting("--set", text, "NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _external(text: str) -> tuple[str, ToolOrigin]:
    name, equals, where = text.partition("=")
    if not equals or not name or not where.strip():
        raise InvalidSetting("--external", text, "NAME=URL or NAME=COMMAND")
    if where.startswith(("http://", "https://")):
        return name, McpServer(where)
    return name, McpProcess(tuple(shlex.split(where)))
