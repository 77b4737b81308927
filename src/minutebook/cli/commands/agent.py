"""`minutebook agent`: check, format and run programs in the agent language."""

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
from minutebook.cli.chat.display import retry_notice, safe_text
from minutebook.cli.exits import EXIT_FINDINGS, INVALID, Command
from minutebook.cli.interrupts import InterruptibleRunner
from minutebook.cli.options import emit, files_argument, flag, is_json, json_option, models_file_option
from minutebook.cli.rewrite import replace_file
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
from minutebook.dsl.parser import parse_with_diagnostics
from minutebook.dsl.syntax import Program
from minutebook.dsl.workflow import DslWorkflow
from minutebook.errors import InvalidSetting, UnreadableInput
from minutebook.prompt.markdown import text_in_prompt
from minutebook.prompt.schema import json_data
from minutebook.record.finding import Severity
from minutebook.tokens.models import MODELS_FILE_VARIABLE


@click.group("agent", short_help="Check, format and run agent programs.")
def command() -> None:
    """Check, format and run programs in the agent language.

    Example: minutebook agent check reviewer.sr
    """


@command.command("check", cls=Command, short_help="Check programs for errors.")
@files_argument
@json_option("Print the diagnostics of all files and a summary as JSON. Example: --json")
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help="Name of a history strategy that will be registered at run time. Example: --strategy my_own",
)
@click.option(
    "--external",
    "externals",
    multiple=True,
    metavar="NAME",
    help="Name of an MCP server that will be supplied at run time, as in mcp.read_file. Example: --external mcp",
)
def check(files: Sequence[str], strategies: Sequence[str], externals: Sequence[str]) -> int:
    """Check each FILE, and print errors and warnings with their lines and columns.

    The programs are not run, and no server is contacted. The exit code is 6 if there are errors, else 0.

    Example: minutebook agent check agents/reviewer.sr --external mcp
    """
    diagnostics = [
        diagnostic for file in files for diagnostic in _diagnose(file, _read(file), strategies, externals)[1]
    ]
    error_count = len(errors_in(diagnostics))
    summary = {"files": len(files), "errors": error_count, "warnings": len(diagnostics) - error_count}
    counts = ", ".join(f"{count} {name if count != 1 else name[:-1]}" for name, count in summary.items())
    if not is_json():
        _print_diagnostics(diagnostics, err=False)
    emit({"diagnostics": [diagnostic.as_json() for diagnostic in diagnostics], "summary": summary}, counts)
    return EXIT_FINDINGS if error_count else 0


@command.command("fmt", cls=Command, short_help="Format programs.")
@files_argument
@flag(
    "-n",
    "--dry-run",
    help_text="Change nothing; list the files that would change and exit with 6 if there are any. Example: minutebook agent fmt --dry-run a.sr",
)
def fmt(files: Sequence[str], dry_run: bool) -> int:
    """Format each FILE in place; - reads stdin and prints to stdout.

    Comments are kept. A file is replaced atomically, and only if it changes. A file with errors is not changed: the
    errors are printed, and the exit code is 5.

    Example: minutebook agent fmt agents/reviewer.sr
    """
    has_errors, changed = False, []
    for file in files:
        text = _read(file)
        program, diagnostics = _diagnose(file, text, (), ())
        # Strategies may be registered at run time, and formatting does not depend on them.
        errors = [diagnostic for diagnostic in errors_in(diagnostics) if diagnostic.code != "unknown-strategy"]
        if program is None or errors:
            _print_diagnostics(errors, err=True)
            has_errors = True
            continue
        formatted = format_agents(program)
        if formatted != text:
            changed.append(file)
        if not dry_run:
            _write(file, text, formatted)
    for file in changed:
        if dry_run or file != "-":
            click.echo(f"{'would change' if dry_run else 'changed'} {file}", err=True)
    if has_errors:
        return INVALID
    return EXIT_FINDINGS if changed and dry_run else 0


@command.command("run", cls=Command, short_help="Run a program.")
@click.argument("file", metavar="FILE|-", type=click.Path(allow_dash=True))
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@click.option(
    "--base-url", metavar="URL",
    help="Base URL of a compatible server for all models of the program. If no API key is set, the key 'none' is "
    "sent. Example: --base-url http://127.0.0.1:8080/v1",
)  # fmt: skip
@click.option(
    "--agent", metavar="NAME", help="Agent to start. Default: the entry of the program. Example: --agent code_reviewer"
)
@click.option(
    "--flow", metavar="NAME", help="Flow to start. Default: the entry of the program. Example: --flow nightly"
)
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="Value of a parameter of the flow, as JSON or text. Can be repeated. Example: --set files='[\"a.py\"]'",
)  # fmt: skip
@click.option(
    "--external", "externals", multiple=True, metavar="NAME=URL|COMMAND",
    help="MCP server for tools that the program uses but does not define. Can be repeated. "
    "Example: --external mcp='notes-server --root .'",
)  # fmt: skip
@models_file_option
@json_option("Print the result and the compaction notices as JSON. Example: --json")
def run(
    file: str,
    prompt: str | None,
    base_url: str | None,
    agent: str | None,
    flow: str | None,
    settings: Sequence[str],
    externals: Sequence[str],
    models_file: str | None,
) -> None:
    """Run the program in FILE, and print its answer to PROMPT.

    The answer is printed to stdout. It is streamed if it is text and stdout is a terminal. Tool calls and compactions of the
    history are printed to stderr. - reads PROMPT from stdin. Agents can access the files of the working directory, and Python
    tools are imported from it.

    API keys are read from OPENAI_API_KEY and ANTHROPIC_API_KEY. Any other PROVIDER must be OpenAI-compatible; its base
    URL is read from PROVIDER_BASE_URL and its key from PROVIDER_API_KEY.

    Example: minutebook agent run agents/reviewer.sr "Review src/app.py."
    """
    if file == "-" and prompt == "-":
        raise click.UsageError("FILE and PROMPT cannot both be read from stdin.")
    text = _read(file)
    prompt_text = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\n") if prompt == "-" else prompt or ""
    servers = dict(map(_external, externals))
    spec = compile_agents(text, source=_display_name(file), strategies=strategy_names(), externals=tuple(servers))
    if not spec.agents and not spec.flows:
        raise UnreadableInput(_display_name(file), "defines no agent and no flow; nothing can be run")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds strings
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - same
    entry_agent = spec.entry.name if spec.entry is not None and spec.entry.kind == "agent" else None
    first_agent = None if flow is not None else agent if agent is not None else entry_agent
    # Only text for a terminal is printed while it arrives. With `produces`, a flow, --json, a file or a pipe, the result is
    # printed when it is complete: the output must not contain a rejected or interrupted answer.
    streams = (
        sys.stdout.isatty() and not is_json() and first_agent is not None and spec.agent(first_agent).produces is None
    )
    environment = {**os.environ, **({MODELS_FILE_VARIABLE: models_file} if models_file else {})}
    printer = _RunPrinter(streams=streams)

    async def run_workflow() -> Any:
        result = None
        async with DslWorkflow(
            spec, adapters=provider_adapters(base_url=base_url), externals=servers, environment=environment
        ) as workflow:
            async for event in workflow.stream(
                prompt_text, agent=agent, flow=flow, values=dict(map(_setting, settings))
            ):
                if isinstance(event, WorkflowFinished):
                    result = event.result
                else:
                    printer.on_event(event)
        return result

    with InterruptibleRunner() as runner:
        try:
            result = runner.run(run_workflow())
        finally:
            printer.end_line()
    emit(
        {"result": json_data(result), "notices": printer.notices},
        lambda: None if printer.has_text else click.echo(safe_text(text_in_prompt(result))),
    )


def _display_name(file: str) -> str:
    return "stdin" if file == "-" else file


def _read(file: str) -> str:
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UnreadableInput(_display_name(file), f"not UTF-8 ({error.reason}); save it as UTF-8", line) from None


def _diagnose(
    file: str, text: str, strategies: Sequence[str], externals: Sequence[str]
) -> tuple[Program | None, tuple[Diagnostic, ...]]:
    program, diagnostics = parse_with_diagnostics(text, source=_display_name(file))
    if program is None:
        return None, diagnostics
    return program, check_agents(program, strategies=(*STRATEGIES, *strategies), externals=externals)


def _write(file: str, text: str, formatted: str) -> None:
    if file == "-":
        click.echo(formatted, nl=False)
    elif formatted != text:
        replace_file(Path(file).resolve(), [formatted.encode()], gzipped=False)


def _print_diagnostics(diagnostics: Sequence[Diagnostic], *, err: bool) -> None:
    for diagnostic in diagnostics:
        heading, *excerpt = str(diagnostic).split("\n")
        color = "red" if diagnostic.severity is Severity.ERROR else "yellow"
        severity = diagnostic.severity.value
        location, separator, code_and_message = heading.partition(f"{severity}[")
        bracket = separator[-1:]
        click.echo(f"{location}{click.style(severity, fg=color)}{bracket}{code_and_message}", err=err)
        for line in excerpt:
            click.echo(line, err=err)


_MAX_CHARACTERS = 100
"""Maximum length of a tool's arguments or result on a line."""


class _RunPrinter:
    """Prints the events of a run: text to stdout if `streams` is set, tool calls and notices to stderr."""

    def __init__(self, *, streams: bool) -> None:
        self._streams = streams
        self.notices: list[str] = []
        self.has_text = False
        self._line_started = False

    def on_event(self, event: AgentEvent) -> None:
        match event.event:
            case TextDelta(text) if self._streams and not event.depth:
                click.echo(safe_text(text), nl=False)
                self.has_text = self._line_started = True
            case HistoryCompacted() as compacted:
                self.notices.append(compacted.notice)
                self._print_notice(event, compacted.notice)
            case ToolCalled(call):
                self._print_notice(event, f"→ {call.name} {_preview_line(call.arguments)}")
            case ToolAnswered(call, content, success):
                self._print_notice(event, f"{'←' if success else '✗'} {call.name} {_preview_line(content)}")
            case AnswerRestarted(problem):
                self._print_notice(event, retry_notice(problem))
            case _:
                pass

    def end_line(self) -> None:
        """Move the cursor to the start of a line."""
        if self._line_started:
            click.echo()
            self._line_started = False

    def _print_notice(self, event: AgentEvent, text: str) -> None:
        self.end_line()
        click.echo(click.style(f"{event.name or 'agent'}: {text}", dim=True), err=True)


def _preview_line(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _MAX_CHARACTERS else f"{line[: _MAX_CHARACTERS - 1]}…"


def _setting(text: str) -> tuple[str, Any]:
    """Parse the value of `--set`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidSetting("--set", text, "NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _external(text: str) -> tuple[str, ToolOrigin]:
    """Parse the value of `--external`."""
    name, equals, server = text.partition("=")
    if not equals or not name or not server.strip():
        raise InvalidSetting("--external", text, "NAME=URL or NAME=COMMAND")
    if server.startswith(("http://", "https://")):
        return name, McpServer(server)
    return name, McpProcess(tuple(shlex.split(server)))
