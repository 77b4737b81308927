"""`minutebook agent`: programs of the agent language."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from minutebook.cli.exits import FINDINGS, INVALID, Command
from minutebook.cli.options import json_option

if TYPE_CHECKING:
    from minutebook.dsl.diagnostic import Diagnostic
    from minutebook.dsl.tree import Program


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
@click.pass_context
def check(
    ctx: click.Context, files: Sequence[str], as_json: bool, strategies: Sequence[str], externals: Sequence[str]
) -> None:
    """Say what is wrong with each FILE, with the line and a caret under the place.

    Nothing is run and nothing is fetched. The exit code is 6 when there are errors and 0 when there are none: warnings
    alone are 0.

    Example: minutebook agent check agents/reviewer.sr --external mcp
    """
    from minutebook.dsl.diagnostic import errors_in

    found = [each for file in files for each in _diagnosed(file, _read(file), strategies, externals)[1]]
    errors = len(errors_in(found))
    tally = {"files": len(files), "errors": errors, "warnings": len(found) - errors}
    if as_json:
        click.echo(json.dumps({"diagnostics": [each.as_json() for each in found], "summary": tally}, indent=2))
    else:
        _print(found, err=False)
        click.echo(", ".join(f"{count} {name if count != 1 else name[:-1]}" for name, count in tally.items()))
    if errors:
        ctx.exit(FINDINGS)


@command.command("fmt", cls=Command, short_help="Write programs in their one form.")
@click.argument("files", metavar="FILE.sr|-…", nargs=-1, required=True)
@click.option(
    "--check",
    "only_check",
    is_flag=True,
    help="Write nothing; name the files that would change, and end with 6 if there are any. Example: minutebook agent fmt --check a.sr",
)
@click.pass_context
def fmt(ctx: click.Context, files: Sequence[str], only_check: bool) -> None:
    """Write each FILE in the one form of the language; - reads stdin and prints.

    Comments stay, and so does what the program means. A file is replaced in one step, and only if it changes. One with
    errors is left alone: its errors are shown, and the exit code is 5.

    Example: minutebook agent fmt agents/reviewer.sr
    """
    from minutebook.dsl.diagnostic import errors_in
    from minutebook.dsl.printer import format_agents

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
        ctx.exit(INVALID)
    if changed and only_check:
        ctx.exit(FINDINGS)


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
    as_json: bool,
) -> None:
    """Run the program in FILE, and print its answer to PROMPT.

    The answer goes to stdout as it comes. What agents do on the way, and where a history was shortened, goes to stderr.
    - reads PROMPT from stdin. Agents see the files of the working folder, and Python tools are imported from there.

    Keys are read from the environment: OPENAI_API_KEY, ANTHROPIC_API_KEY. Another provider speaks as OpenAI does, at the
    address in PROVIDER_BASE_URL, with the key in PROVIDER_API_KEY.

    Example: minutebook agent run agents/reviewer.sr "Review src/app.py."
    """
    from minutebook.cli.agentrun import run_program

    if file == "-" and prompt == "-":
        raise click.UsageError("FILE and PROMPT cannot both be read from stdin.")
    given = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\n") if prompt == "-" else prompt or ""
    run_program(
        _read(file),
        "stdin" if file == "-" else file,
        given,
        base_url=base_url,
        agent=agent,
        flow=flow,
        settings=settings,
        externals=externals,
        as_json=as_json,
    )


def _read(file: str) -> str:
    from minutebook.errors import UnreadableInput

    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UnreadableInput("stdin" if file == "-" else file, f"not UTF-8 ({error.reason})", line) from None


def _diagnosed(
    file: str, text: str, strategies: Sequence[str], externals: Sequence[str]
) -> "tuple[Program | None, tuple[Diagnostic, ...]]":
    from minutebook.dsl.check import check_agents
    from minutebook.dsl.parse import parsed
    from minutebook.dsl.scope import STRATEGIES

    program, found = parsed(text, source="stdin" if file == "-" else file)
    if program is None:
        return None, found
    return program, check_agents(program, strategies=(*STRATEGIES, *strategies), externals=externals)


def _write(file: str, before: str, after: str) -> None:
    from minutebook.cli.writing import put_in_place, write_atomically

    if file == "-":
        click.echo(after, nl=False)
    elif after != before:
        target = Path(file).resolve()
        put_in_place(write_atomically(target, [after.encode()], gzipped=False), target)


def _print(found: "Sequence[Diagnostic]", *, err: bool) -> None:
    from minutebook.record.finding import Severity

    for each in found:
        head, *excerpt = str(each).split("\n")
        colour = "red" if each.severity is Severity.ERROR else "yellow"
        place, severity, rest = head.partition(f"{each.severity.value}[")
        click.echo(f"{place}{click.style(each.severity.value, fg=colour)}{severity[-1:]}{rest}", err=err)
        for line in excerpt:
            click.echo(line, err=err)
