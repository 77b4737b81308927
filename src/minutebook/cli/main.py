"""The `minutebook` command: one group, whose commands are imported when they are called."""

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Final

import click

from minutebook import __version__

COMMANDS: Final = {
    "agent": "Check, format and run agent programs.",
    "chat": "Talk to a model, and see what it is sent.",
    "check": "What a provider would refuse.",
    "compact": "Show the old part of a conversation as a summary.",
    "completion": "Completion for bash, zsh or fish.",
    "config": "What the service is told, and by whom.",
    "db": "Make, look after and copy the database.",
    "demo": "A coding agent's session, sent three ways.",
    "erase": "Remove conversations for good.",
    "export": "Write conversations as lines of JSON.",
    "fork": "Begin another conversation like one that is there.",
    "gc": "Trim the payloads of old tool calls.",
    "import": "Keep the conversations of a file.",
    "keys": "Make, list, revoke and rotate API keys; the audit log.",
    "ls": "Which conversations are kept.",
    "models": "How much a model reads and writes, and what that costs.",
    "repair": "Put right what a provider would refuse.",
    "search": "Find where something was said.",
    "serve": "Serve chat over HTTP, with kept and pruned history.",
    "show": "Read a conversation.",
    "tokens": "Tokens in all, by role, and the largest messages.",
    "undo": "Take a fold away.",
    "view": "What a model would be sent, beside the record.",
}
"""Command → what it does, so that help needs to import none of them."""


def _module(name: str) -> str:
    return {"chat": "minutebook.cli.chat.command", "import": "minutebook.cli.commands.import_"}.get(
        name, f"minutebook.cli.commands.{name}"
    )


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        if cmd_name not in COMMANDS:
            return None
        command = import_module(_module(cmd_name)).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from minutebook.errors import closest

            near = closest(args[0], COMMANDS)
            hint = f" Did you mean {near!r}?" if near else f" Commands: {', '.join(sorted(COMMANDS))}."
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
