"""The chat at a terminal: lines are said to the model, `/` lines are for us."""

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
from minutebook.cli.chat.conversation import ChatConversation
from minutebook.cli.chat.display import Voice, show_context
from minutebook.cli.commands.view import show
from minutebook.cli.database import Database
from minutebook.cli.exits import complain
from minutebook.cli.providers import Access
from minutebook.cli.screen import console, preview
from minutebook.errors import CannotFit
from minutebook.history.budget import TokenBudgetManager
from minutebook.record.message import role_of

HELP: Final = """\
/context     what fills the window, and what was left out of it
/view        what was last sent, message by message; /view json, as it is
/help        this
/quit        leave; so does Ctrl-D
Ctrl-C stops an answer; what came of it is kept.
A line that ends with \\ goes on in the next one.
A blank before a / says the line to the model."""

_COMMAND: Final = re.compile(r"/[a-z]+(?=\s|$)")
_FINISH: Final = {"length": "cut off at the model's limit", "content_filter": "withheld by the provider's filter"}


class Quit(Exception):
    """The user wants to leave."""


class ChatLoop:
    """Reads lines, and answers them until the user leaves."""

    def __init__(self, chat: ChatConversation, database: Database, access: Access) -> None:
        self._chat, self._database, self._access = chat, database, access
        self._out = console()
        self._prompt = "> "
        self._commands: dict[str, Callable[[str], None]] = {
            "/context": self._context,
            "/view": self._view,
            "/help": self._help,
            "/quit": self._quit,
        }

    def run(self, first: str | None, farewell: str) -> None:
        """Say `first`, if there is something to say, and then whatever is typed.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed twice at the prompt.
        """
        self._greet()
        self._prepare()
        try:
            if first is not None:
                self._out.print(Text(f"> {first}"))
                self._ask(first)
            interrupted = self._converse()
        except SystemExit:
            with suppress(OSError):  # the terminal may be gone
                self._out.print()
            raise
        if self._chat.record:
            self._note(farewell)
        if interrupted:
            raise KeyboardInterrupt

    def _converse(self) -> bool:
        """Take lines until the user leaves; whether that was by Ctrl-C."""
        pressed = False
        while True:
            try:
                line = self._read()
                pressed = False
                self._take(line)
            except Quit:
                return False
            except EOFError:
                self._out.print()
                return False
            except KeyboardInterrupt:
                self._out.print()
                if pressed:
                    return True
                pressed = True
                self._note("Ctrl-C again, or Ctrl-D, leaves")

    def _greet(self) -> None:
        """Say who is asked, where it is kept, and what was said before."""
        chat = self._chat
        self._out.print(Text.assemble((chat.adapter.model, "bold"), (f" at {self._access.where}", "dim")))
        self._note(f"stored as {chat.id}; minutebook show {chat.id} prints it")
        if chat.record:
            self._note(f"{len(chat.record):,} messages so far, {chat.record.tokens:,} tokens")
            for message in chat.record[-2:]:
                said = Text(f"{role_of(message)}: {preview(message)}", "dim")
                self._out.print(said, no_wrap=True, overflow="ellipsis")
        self._note("/help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves\n")

    def _prepare(self) -> None:
        """Line editing where there is any, and no line that cannot be read."""
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        try:
            import readline  # noqa: F401 - input() uses it from now on
        except ImportError:
            return
        if self._out.color_system and not self._out.no_color:
            # Between \1 and \2 stands what takes no room, or the line would break in the wrong place.
            self._prompt = "\1\x1b[1;36m\2> \1\x1b[0m\2"

    def _read(self) -> str:
        lines = [input(self._prompt)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(input("  "))
        return "\n".join(lines)

    def _take(self, line: str) -> None:
        command = _COMMAND.match(line)
        if command is None:
            if line.strip():
                self._ask(line.strip())
        elif command[0] in self._commands:
            self._commands[command[0]](line[command.end() :].strip())
            self._out.print()
        else:
            self._note(f"there is no {command[0]}; /help lists the commands, a blank before it says it to the model")

    def _ask(self, text: str) -> None:
        voice = Voice(self._out)
        try:
            response = self._database.run(self._chat.ask(text, voice.hear))
        except KeyboardInterrupt:
            voice.end()
            self._note("stopped; what came is kept\n")
        except BrokenPipeError:
            raise
        # Whatever it is, the chat goes on: what was said is kept, and can be said again.
        except Exception as error:
            voice.end()
            if os.environ.get("MINUTEBOOK_DEBUG"):
                raise
            self._access.complain(error)
            self._out.print()
        else:
            self._note(self._footer(response) + "\n")

    def _footer(self, response: PromptResponse[str]) -> str:
        used, sent = response.usage, len(response.view.messages)
        parts = [f"messages {sent:,} sent, {len(self._chat.record):,} recorded"]
        if used.total_tokens:
            parts.insert(
                0, f"tokens {used.input_tokens:,} in, {used.cached_tokens:,} cached, {used.output_tokens:,} out"
            )
        if response.finish in _FINISH:
            parts.append(_FINISH[response.finish])
        return " · ".join(parts)

    def _context(self, _: str) -> None:
        chat = self._chat
        if not chat.record:
            self._note("nothing was said yet")
            return
        limit = chat.max_tokens
        if limit is None and isinstance(chat.manager, TokenBudgetManager):
            limit = chat.manager.limit
        if (view := chat.sent()) is not None:
            show_context(self._out, view, limit, "sent")
            messages, tokens = chat.since()
            self._out.print(f"since then: {messages:,} more, {tokens:,} tokens")
            return
        try:
            show_context(self._out, chat.next_view(), limit, "to send")
        except CannotFit as error:
            complain(error)

    def _view(self, form: str) -> None:
        view = self._chat.sent()
        if view is None:
            self._note("nothing was sent yet")
        elif form == "json":
            click.echo(json.dumps(view.messages, indent=2))
        elif form:
            self._note("/view, or /view json")
        else:
            show(view, "what was last sent", view.record.counter.name, every=True)

    def _help(self, _: str) -> None:
        self._note(HELP)

    def _quit(self, _: str) -> None:
        raise Quit

    def _note(self, text: str) -> None:
        self._out.print(Text(text, "dim"), soft_wrap=True)  # a path or a command can be copied whole
