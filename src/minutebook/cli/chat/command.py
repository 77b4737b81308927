"""`minutebook chat`: talk to a model, and see what it is sent.

One question, one answer: for scripts.
"""

import errno
import shlex
import sys
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import uuid4

import click
from click.core import ParameterSource

from minutebook.agent.events import AnswerRestarted, RunEvent
from minutebook.agent.messages import PromptResponse, TextDelta
from minutebook.cli.chat.conversation import RECIPIENT, ChatConversation
from minutebook.cli.chat.display import Voice, asking_again
from minutebook.cli.commands.view import cuts_of
from minutebook.cli.database import Database, file_of, opened_database
from minutebook.cli.exits import Command, exit_code
from minutebook.cli.options import emit, flag, is_json, json_option, manager_options, store_options
from minutebook.cli.providers import access_to
from minutebook.cli.screen import console
from minutebook.conversation.policy import manager_from_texts
from minutebook.errors import InvalidSetting, ProviderFailed


@click.command("chat", cls=Command, short_help="Talk to a model, and see what it is sent.")
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@click.option(
    "-m", "--model", metavar="MODEL",
    help="The model to ask; with --continue, by default the one that was asked last. Example: -m gpt-4o",
)  # fmt: skip
@click.option(
    "--base-url", metavar="URL",
    help="A server that speaks as the provider does; without a key in the environment it is sent the key 'none'. "
    "Example: --base-url http://127.0.0.1:8080/v1",
)  # fmt: skip
@click.option(
    "--provider", type=click.Choice(["openai", "anthropic"]),
    help="Whose protocol to speak; openai, or with --continue the last one. Example: --provider anthropic",
)  # fmt: skip
@manager_options
@click.option(
    "--system", metavar="TEXT",
    help="The system message; with --continue it takes the place of the one there was. "
    'Example: --system "Answer in one sentence."',
)  # fmt: skip
@flag(
    "--continue",
    "resume",
    help_text="Go on with the chat in which something was said last, or with that of --id. Example: minutebook chat --continue",
)
@click.option(
    "--id", "conversation", metavar="ID",
    help="The id of the conversation; by default a new one. Example: --id tea",
)  # fmt: skip
@store_options
@flag(
    "-p",
    "--print",
    "once",
    help_text="Answer PROMPT and end, also on a terminal. Example: minutebook chat -p 'Why is the sky blue?' -m gpt-4o",
)
@json_option(
    "Answer PROMPT and end; print one JSON document with the answer, its tokens and what was sent. "
    "Example: minutebook chat 'Why is the sky blue?' -m gpt-4o --json"
)
def command(
    prompt: str | None,
    model: str | None,
    base_url: str | None,
    provider: str | None,
    managers: tuple[str, ...],
    max_tokens: int | None,
    system: str | None,
    resume: bool,
    conversation: str | None,
    url: str | None,
    tenant: str,
    once: bool,
) -> int:
    """Talk to a model; it has no tools. PROMPT is the first thing said.

    In the chat /context shows what fills the window, /view what was last sent, /help the rest. Ctrl-C stops an answer.
    Everything said is stored as it is said, as a conversation that ls, show and search know, and --continue goes on with
    it. The database is made if there is none.

    Where stdin or stdout is no terminal, or with --print or --json, PROMPT is answered and that is all; - reads it from
    stdin. The key is read from OPENAI_API_KEY, or for Anthropic from ANTHROPIC_API_KEY.

    Example: minutebook chat -m gpt-4o --max-tokens 8000
    """
    once = once or is_json() or prompt == "-" or not (sys.stdin.isatty() and sys.stdout.isatty())
    text = _question(prompt, once=once)
    if system is not None and not system.strip():
        raise InvalidSetting("--system", system, "some text, or leave it out")
    manager = manager_from_texts(managers, max_tokens)
    with ExitStack() as opened:
        database, last = None, None
        if resume:
            database = opened.enter_context(opened_database(url, tenant))
            conversation = conversation or newest_chat(database)
            last = database.run(database.store.load(conversation, last_messages=1)).entries[-1:]
            model = model or (last[0].model if last else None)
            provider = provider or (last[0].provider if last else None)
        if model is None:
            raise click.UsageError("Missing option '-m' / '--model': the model to ask, such as -m gpt-4o.")
        access = access_to(provider or "openai", base_url)
        adapter = access.adapter(model)
        database = database or opened.enter_context(opened_database(url, tenant, make=True))
        conversation = conversation or f"chat-{datetime.now().astimezone():%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"
        chat = ChatConversation(database.store, conversation, adapter, manager, max_tokens, system)
        if database.run(chat.load()) is not None and not resume:
            raise InvalidSetting("--id", conversation, "--continue too, to go on with it, or an id that is not taken")
        opened.callback(lambda: database.run(adapter.aclose()))
        if text is not None and once:
            try:
                answer_once(chat, database, text)
            except ProviderFailed as error:
                access.complain(error)
                return exit_code(error)
        else:
            from minutebook.cli.chat.repl import ChatLoop

            ChatLoop(chat, database, access).run(text, farewell=_farewell(click.get_current_context()))
    return 0


def newest_chat(database: Database) -> str:
    """The id of the chat in which something was said last.

    Raises:
        FileNotFoundError: there is none.
    """
    chats = database.conversations(recipient=RECIPIENT)
    newest = max(chats, key=lambda chat: (chat.updated_at, chat.id), default=None)
    if newest is None:
        problem = "there is no chat to go on with; leave --continue out to begin one"
        raise FileNotFoundError(errno.ENOENT, problem, str(file_of(database.store) or "the database"))
    return newest.id


def _question(prompt: str | None, *, once: bool) -> str | None:
    """What to ask first; None where it is still to be typed."""
    if prompt == "-" or (prompt is None and not sys.stdin.isatty()):
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\n")
    if prompt is not None:
        # What the shell gave us that is no text has no place in JSON.
        prompt = prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if (once or prompt is not None) and not (prompt or "").strip():
        raise click.UsageError("Missing argument 'PROMPT': what to ask, or - to read it from stdin.")
    return prompt


def _farewell(ctx: click.Context) -> str:
    """How to go on another time: with the same options for where the chat is, and where the model."""
    options = {"conversation": "--id", "url": "--db", "tenant": "--tenant", "base_url": "--base-url"}
    given = [
        f" {option} {shlex.quote(ctx.params[name])}"
        for name, option in options.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    return f"go on with: minutebook chat --continue{''.join(given)}"


def answer_once(chat: ChatConversation, database: Database, text: str) -> None:
    """Ask, and print the answer: as it comes on a terminal, whole where a program reads it."""
    out = console()
    if is_json():
        emit(_document(chat, database.run(chat.ask(text, _Heard().hear))), "")
    elif out.is_terminal:
        voice = Voice(out)
        try:
            database.run(chat.ask(text, voice.hear))
        finally:
            voice.end()
    else:
        heard = _Heard()
        try:
            heard.text = database.run(chat.ask(text, heard.hear)).text
        finally:
            if heard.text:
                click.echo(heard.text)


class _Heard:
    """What came of an answer so far: all there is of one that breaks off."""

    def __init__(self) -> None:
        self.text = ""

    def hear(self, event: RunEvent) -> None:
        if isinstance(event, TextDelta):
            self.text += event.text
        elif isinstance(event, AnswerRestarted):
            self.text = ""
            click.echo(asking_again(event.problem), err=True)


def _document(chat: ChatConversation, response: PromptResponse[str]) -> dict[str, Any]:
    view = chat.sent() or response.view
    explanation = view.explain()
    return {
        "text": response.text,
        "finish": response.finish,
        "refusal": response.refusal,
        "provider": chat.adapter.name,
        "model": chat.adapter.model,
        "usage": asdict(response.usage),
        "view": {
            "messages": len(view.messages),
            "tokens": explanation.view_tokens,
            "record_messages": len(view.record),
            "record_tokens": explanation.record_tokens,
            "cuts": [
                {"fate": cut.fate.value, "reason": cut.reason, "messages": cut.messages, "tokens": cut.tokens}
                for cut in cuts_of(explanation.lines)
            ],
            "breaches": [{"promise": breach.promise.value, "detail": breach.detail} for breach in view.breaches],
        },
        "conversation": chat.id,
    }
