"""The interactive chat. Lines are sent to the model; lines that start with `/` are commands."""

import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import Final

import click
from rich.text import Text

from minutebook.agent.messages import PromptResponse
from minutebook.agent.providers.environment import ProviderAccess
from minutebook.cli.chat.conversation import ChatConversation
from minutebook.cli.chat.display import AnswerPrinter, print_provider_error, show_context
from minutebook.cli.commands.view import show
from minutebook.cli.database import Database
from minutebook.cli.exits import print_error
from minutebook.cli.screen import console, preview
from minutebook.errors import CannotFit
from minutebook.record.message import role_of

HELP: Final = """\
/context     show what fills the context window and what was left out
/view        show the messages that were last sent; /view json prints them as JSON
/help        show this help
/quit        leave the chat (or press Ctrl-D)
Ctrl-C stops an answer; the part received so far is stored.
A line that ends with \\ continues in the next line.
To send a line that starts with /, put a space before it."""

_COMMAND: Final = re.compile(r"/[a-z]+(?=\s|$)")
_FINISH_NOTES: Final = {
    "length": "cut off at the output limit",
    "content_filter": "blocked by the provider's content filter",
}


class Quit(Exception):
    """Raised by /quit."""


class ChatLoop:
    """Reads lines and sends them to the model until the user leaves."""

    def __init__(self, chat: ChatConversation, database: Database, access: ProviderAccess) -> None:
        self._chat, self._database, self._access = chat, database, access
        self._out = console()
        self._prompt = "> "
        self._commands: dict[str, Callable[[str], None]] = {
            "/context": self._context,
            "/view": self._view,
            "/help": self._help,
            "/quit": self._quit,
        }

    def run(self, first_message: str | None, farewell: str) -> None:
        """Send `first_message`, if there is one, and then the lines that the user types. Print `farewell` at the end.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed twice at the prompt.
        """
        self._greet()
        self._set_up_input()
        try:
            if first_message is not None:
                self._out.print(Text(f"> {first_message}"))
                self._ask(first_message)
            interrupted = self._loop()
        except SystemExit:
            with suppress(OSError):  # the terminal may be closed
                self._out.print()
            raise
        if len(self._chat.conversation):
            self._note(farewell)
        if interrupted:
            raise KeyboardInterrupt

    def _loop(self) -> bool:
        """Process lines until the user leaves. Return whether that was by pressing Ctrl-C twice."""
        interrupted = False
        while True:
            try:
                line = self._read()
                interrupted = False
                self._process(line)
            except Quit:
                return False
            except EOFError:
                self._out.print()
                return False
            except KeyboardInterrupt:
                self._out.print()
                if interrupted:
                    return True
                interrupted = True
                self._note("press Ctrl-C again or Ctrl-D to leave")

    def _greet(self) -> None:
        """Print the model, the id of the conversation and its last messages."""
        chat = self._chat
        self._out.print(
            Text.assemble(
                (chat.adapter.model, "bold"), (f" at {self._access.base_url or self._access.provider}", "dim")
            )
        )
        self._note(f"stored as {chat.id}; minutebook show {chat.id} prints it")
        if record := chat.record:
            self._note(f"{len(record):,} messages so far, {record.tokens:,} tokens")
            for message in record[-2:]:
                line = Text(f"{role_of(message)}: {preview(message)}", "dim")
                self._out.print(line, no_wrap=True, overflow="ellipsis")
        self._note("/help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves\n")

    def _set_up_input(self) -> None:
        """Enable line editing if readline is available, and replace invalid UTF-8 in the input."""
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        try:
            import readline  # noqa: F401 - input() uses it from now on
        except ImportError:
            return
        if self._out.color_system and not self._out.no_color:
            # readline ignores text between \1 and \2 when it measures the prompt; otherwise lines would wrap wrongly.
            self._prompt = "\1\x1b[1;36m\2> \1\x1b[0m\2"

    def _read(self) -> str:
        lines = [input(self._prompt)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(input("  "))
        return "\n".join(lines)

    def _process(self, line: str) -> None:
        command = _COMMAND.match(line)
        if command is None:
            if line.strip():
                self._ask(line.strip())
        elif command[0] in self._commands:
            self._commands[command[0]](line[command.end() :].strip())
            self._out.print()
        else:
            self._note(
                f"unknown command {command[0]}; /help lists the commands. To send the line, put a space before it"
            )

    def _ask(self, text: str) -> None:
        printer = AnswerPrinter(self._out)
        try:
            response = self._database.run(self._chat.ask(text, printer.on_event))
        except KeyboardInterrupt:
            printer.end()
            self._note("stopped; the part received so far is stored\n")
        except BrokenPipeError:
            raise
        # Every error is reported and the chat continues: the user message is stored and can be sent again.
        except Exception as error:
            printer.end()
            if os.environ.get("MINUTEBOOK_DEBUG"):
                raise
            print_provider_error(self._access, error)
            self._out.print()
        else:
            self._note(self._footer(response) + "\n")

    def _footer(self, response: PromptResponse[str]) -> str:
        usage, sent = response.usage, len(response.view.curated)
        parts = [f"messages {sent:,} sent, {len(self._chat.conversation):,} recorded"]
        if usage.total_tokens:
            parts.insert(
                0, f"tokens {usage.input_tokens:,} in, {usage.cached_tokens:,} cached, {usage.output_tokens:,} out"
            )
        if response.finish in _FINISH_NOTES:
            parts.append(_FINISH_NOTES[response.finish])
        return " · ".join(parts)

    def _context(self, _: str) -> None:
        chat = self._chat
        if not len(chat.conversation):
            self._note("the chat is empty")
            return
        if (view := chat.last_view()) is not None:
            show_context(self._out, view, chat.limit, "sent")
            messages, tokens = chat.added_since_last_view()
            self._out.print(f"added since then: {messages:,} messages, {tokens:,} tokens")
            return
        try:
            show_context(self._out, self._database.run(chat.conversation.fit()), chat.limit, "to send")
        except CannotFit as error:
            print_error(error)

    def _view(self, output_format: str) -> None:
        view = self._chat.last_view()
        if view is None:
            self._note("nothing was sent in this chat session yet")
        elif output_format == "json":
            click.echo(json.dumps(view.messages, indent=2))
        elif output_format:
            self._note("usage: /view or /view json")
        else:
            show(view, "the last view sent", view.record.counter.name, show_all=True)

    def _help(self, _: str) -> None:
        self._note(HELP)

    def _quit(self, _: str) -> None:
        raise Quit

    def _note(self, text: str) -> None:
        self._out.print(Text(text, "dim"), soft_wrap=True)  # not wrapped, so that a path or a command can be copied
