"""The `minutebook` command: a group that imports the module of a command when it is called."""

import os
import sys
from io import TextIOWrapper
from typing import Final

import click

from minutebook import __version__
from minutebook._lazy import import_with_extra

COMMANDS: Final = {
    "agent": "Check, format and run agent programs.",
    "chat": "Chat with a model and inspect what it is sent.",
    "check": "Check conversations against provider rules.",
    "clear": "Begin a conversation again under the same id.",
    "compact": "Replace old messages with a summary in the view for models.",
    "completion": "Print a completion script for bash, zsh or fish.",
    "config": "Show and validate the service configuration.",
    "convert": "Write conversations in another format.",
    "db": "Create, migrate, check and back up the database.",
    "demo": "Compare three history managers on a simulated coding session.",
    "erase": "Delete conversations permanently.",
    "export": "Export conversations as JSONL.",
    "fork": "Copy a conversation under a new id.",
    "formats": "List the file formats that can be read and written.",
    "gc": "Delete old tool calls or unused conversations.",
    "import": "Add the conversations of a file to the database.",
    "keys": "Manage API keys and show the audit log.",
    "inspect": "Show in the browser what a model was sent, and why.",
    "lab": "Replay recorded sessions: what would each policy have cost and kept?",
    "ls": "List stored conversations.",
    "models": "Show context windows, output limits and prices of models.",
    "readmit": "Allow new conversations with a blocked recipient.",
    "repair": "Repair conversations that a provider would reject.",
    "rewind": "Continue a conversation from an earlier message.",
    "search": "Search the messages of stored conversations.",
    "serve": "Run the HTTP service (OpenAI API with stored history).",
    "show": "Show a stored conversation.",
    "tokens": "Count tokens, in total, by role and by message.",
    "undo": "Undo a compaction.",
    "view": "Compare a conversation with what a model would get.",
    "worker": "Compact conversations in the background.",
    "why": "Show why a message was not sent in a request.",
}
"""Command → its short help, here so that `minutebook --help` imports no command."""


def _module_of(name: str) -> str:
    return {"chat": "minutebook.cli.chat.command", "import": "minutebook.cli.commands.import_"}.get(
        name, f"minutebook.cli.commands.{name}"
    )


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        from minutebook.errors import MissingExtra

        try:
            command = import_with_extra(_module_of(cmd_name)).command
        except MissingExtra as error:
            from minutebook.cli.exits import exit_code, print_error

            print_error(error)
            ctx.exit(exit_code(error))
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

            suggestion = closest(args[0], COMMANDS)
            hint = f" Did you mean {suggestion!r}?" if suggestion else f" Commands: {', '.join(sorted(COMMANDS))}."
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="minutebook %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Conversation history for LLM agents: check, repair and store it, and see what a model would get.

    FILE is a transcript in any format that `minutebook formats` lists, plain or gzipped, or a folder of them; - is stdin.
    Data goes to stdout, everything else to stderr.

    ID is the id of a conversation in the database given by --db or MINUTEBOOK_DB.

    Exit codes: 0 success, 1 failed, 2 wrong usage, 3 not found, 5 invalid input, 6 success with findings,
    130 interrupted.

    Example: minutebook demo
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> None:
    """The entry point of the `minutebook` script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Characters that the terminal's encoding lacks become question marks. JSON output is ASCII.
            stream.reconfigure(errors="replace")
    cli(prog_name="minutebook")
