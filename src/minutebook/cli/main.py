"""The `minutebook` command: one group, whose commands are imported when they are called."""

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Final

import click

from minutebook import __version__

COMMANDS: Final = {
    "agent": "minutebook.cli.agent",
    "chat": "minutebook.cli.chat",
    "check": "minutebook.cli.check",
    "compact": "minutebook.cli.compact",
    "completion": "minutebook.cli.completion",
    "config": "minutebook.cli.config",
    "db": "minutebook.cli.db",
    "demo": "minutebook.cli.demo",
    "erase": "minutebook.cli.erase",
    "export": "minutebook.cli.export",
    "fork": "minutebook.cli.fork",
    "gc": "minutebook.cli.gc",
    "import": "minutebook.cli.import_",
    "keys": "minutebook.cli.keys",
    "ls": "minutebook.cli.ls",
    "models": "minutebook.cli.models",
    "repair": "minutebook.cli.repair",
    "search": "minutebook.cli.search",
    "serve": "minutebook.cli.serve",
    "show": "minutebook.cli.show",
    "tokens": "minutebook.cli.tokens",
    "undo": "minutebook.cli.undo",
    "view": "minutebook.cli.view",
}
"""Command → the module whose `command` it is."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        home = COMMANDS.get(cmd_name)
        if home is None:
            return None
        command = import_module(home).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Commands: {', '.join(sorted(COMMANDS))}."
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="minutebook %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Conversation history for LLM agents: check it, repair it, keep it, and see what a model would be sent.

    FILE is OpenAI chat JSON or JSONL, plain or gzipped, with one conversation or many; - is stdin. Data goes to stdout,
    everything else to stderr.

    ID is a conversation that is kept in the database that --db or MINUTEBOOK_DB names.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 is not there, 5 invalid input, 6 done with findings,
    130 interrupted.

    Example: minutebook demo
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> None:
    """The entry point of the `minutebook` script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show a character shows a question mark; JSON is ASCII and never needs one.
            stream.reconfigure(errors="replace")
    cli(prog_name="minutebook")
