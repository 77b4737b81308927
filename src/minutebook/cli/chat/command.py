"""`minutebook chat`: the command, and the mode for scripts that answers one prompt."""

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
from minutebook.agent.providers.environment import OFFICIAL_PROVIDERS, provider_access
from minutebook.cli.chat.conversation import RECIPIENT, ChatConversation
from minutebook.cli.chat.display import AnswerPrinter, print_provider_error, retry_notice
from minutebook.cli.commands.view import cuts_of
from minutebook.cli.database import Database, file_of, open_database
from minutebook.cli.exits import Command, exit_code
from minutebook.cli.options import (
    emit,
    flag,
    is_json,
    json_option,
    manager_options,
    models_file_option,
    store_options,
)
from minutebook.cli.screen import console
from minutebook.conversation.policy import manager_from_texts
from minutebook.errors import InvalidSetting, ProviderFailed
from minutebook.tokens.models import load_models


@click.command("chat", cls=Command, short_help="Chat with a model and inspect what it is sent.")
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@click.option(
    "-m", "--model", metavar="MODEL",
    help="Model to call. Default with --continue: the model of the last answer. Example: -m gpt-4o",
)  # fmt: skip
@click.option(
    "--base-url", metavar="URL",
    help="Base URL of a compatible server. If no API key is set, the key 'none' is sent. "
    "Example: --base-url http://127.0.0.1:8080/v1",
)  # fmt: skip
@click.option(
    "--provider", type=click.Choice(OFFICIAL_PROVIDERS),
    help="Provider API to use. Default: openai, or with --continue the one used last. Example: --provider anthropic",
)  # fmt: skip
@models_file_option
@manager_options
@click.option(
    "--system", metavar="TEXT",
    help="System message. With --continue it replaces the current one. "
    'Example: --system "Answer in one sentence."',
)  # fmt: skip
@flag(
    "--continue",
    "resume",
    help_text="Continue the most recent chat, or the one given by --id. Example: minutebook chat --continue",
)
@click.option(
    "--id", "conversation", metavar="ID",
    help="Id of the conversation. Default: a new id. Example: --id tea",
)  # fmt: skip
@store_options
@flag(
    "-p",
    "--print",
    "exits_after_answer",
    help_text="Answer PROMPT and exit, also on a terminal. Example: minutebook chat -p 'Why is the sky blue?' -m gpt-4o",
)
@json_option(
    "Answer PROMPT, print the answer, its tokens and a summary of the view as JSON, and exit. "
    "Example: minutebook chat 'Why is the sky blue?' -m gpt-4o --json"
)
def command(
    prompt: str | None,
    model: str | None,
    base_url: str | None,
    provider: str | None,
    models_file: str | None,
    managers: tuple[str, ...],
    max_tokens: int | None,
    system: str | None,
    resume: bool,
    conversation: str | None,
    url: str | None,
    tenant: str,
    exits_after_answer: bool,
) -> int:
    """Chat with a model, without tools. PROMPT is the first message.

    In the chat, /context shows what fills the context window, /view what was last sent, and /help all commands. Ctrl-C
    stops an answer. Messages are stored immediately, as a conversation that ls, show and search find and that --continue
    resumes. The database is created if it does not exist.

    If stdin or stdout is not a terminal, or with --print or --json, PROMPT is answered and the command exits; - reads it
    from stdin. The API key is read from OPENAI_API_KEY, or for Anthropic from ANTHROPIC_API_KEY.

    Example: minutebook chat -m gpt-4o --max-tokens 8000
    """
    exits_after_answer = (
        exits_after_answer or is_json() or prompt == "-" or not (sys.stdin.isatty() and sys.stdout.isatty())
    )
    text = _first_message(prompt, exits_after_answer=exits_after_answer)
    if system is not None and not system.strip():
        raise InvalidSetting("--system", system, "text; to use no system message, omit the option")
    manager = manager_from_texts(managers, max_tokens)
    models = load_models(models_file) if models_file else {}
    with ExitStack() as resources:
        database = None
        if resume:
            database = resources.enter_context(open_database(url, tenant))
            conversation = conversation or newest_chat(database)
            last_entries = database.run(database.store.load(conversation, last_messages=1)).entries[-1:]
            for entry in last_entries:
                model, provider = model or entry.model, provider or entry.provider
        if model is None:
            raise click.UsageError("Missing option '-m' / '--model': the model to call, such as -m gpt-4o.")
        if provider not in {None, *OFFICIAL_PROVIDERS}:  # that of the last answer
            raise InvalidSetting("--provider", provider, f"one of {', '.join(OFFICIAL_PROVIDERS)}")
        access = provider_access(provider or "openai", base_url)
        adapter = access.adapter(model)
        database = database or resources.enter_context(open_database(url, tenant, create=True))
        conversation = conversation or f"chat-{datetime.now().astimezone():%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"
        chat = ChatConversation(
            database.store,
            conversation,
            adapter,
            manager=manager,
            max_tokens=max_tokens,
            models=models,
            system=system,
            recipient=None if resume else RECIPIENT,
        )
        if len(database.run(chat.conversation.open())) and not resume:
            raise InvalidSetting("--id", conversation, "an unused id; to continue this conversation, add --continue")
        resources.callback(lambda: database.run(adapter.aclose()))
        if text is not None and exits_after_answer:
            try:
                answer_once(chat, database, text)
            except ProviderFailed as error:
                print_provider_error(access, error)
                return exit_code(error)
        else:
            from minutebook.cli.chat.repl import ChatLoop

            ChatLoop(chat, database, access).run(text, farewell=_resume_hint(click.get_current_context()))
    return 0


def newest_chat(database: Database) -> str:
    """Id of the chat that was updated last.

    Raises:
        FileNotFoundError: there is no chat.
    """
    chats = database.conversations(recipient=RECIPIENT)
    newest = max(chats, key=lambda chat: (chat.updated_at, chat.id), default=None)
    if newest is None:
        problem = "there is no chat to continue; omit --continue to start one"
        raise FileNotFoundError(errno.ENOENT, problem, str(file_of(database.store) or "the database"))
    return newest.id


def _first_message(prompt: str | None, *, exits_after_answer: bool) -> str | None:
    """The text of PROMPT or stdin; None if the user will type it in the chat."""
    if prompt == "-" or (prompt is None and not sys.stdin.isatty()):
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\n")
    if prompt is not None:
        # Bytes that are not UTF-8 arrive as surrogates, which cannot be stored.
        prompt = prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if (exits_after_answer or prompt is not None) and not (prompt or "").strip():
        raise click.UsageError("Missing argument 'PROMPT': the text to send, or - to read it from stdin.")
    return prompt


def _resume_hint(ctx: click.Context) -> str:
    """The command that continues this chat, with the options of this call that it needs."""
    options = {"conversation": "--id", "url": "--db", "tenant": "--tenant", "base_url": "--base-url"}
    arguments = [
        f" {option} {shlex.quote(ctx.params[name])}"
        for name, option in options.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    return f"continue with: minutebook chat --continue{''.join(arguments)}"


def answer_once(chat: ChatConversation, database: Database, text: str) -> None:
    """Send the text and print the answer: streamed on a terminal, otherwise when it is complete."""
    out = console()
    if is_json():
        emit(_answer_json(chat, database.run(chat.ask(text, _AnswerText().on_event))), "")
    elif out.is_terminal:
        printer = AnswerPrinter(out)
        try:
            database.run(chat.ask(text, printer.on_event))
        finally:
            printer.end()
    else:
        answer = _AnswerText()
        try:
            answer.text = database.run(chat.ask(text, answer.on_event)).text
        finally:
            if answer.text:
                click.echo(answer.text)


class _AnswerText:
    """Collects the text of an answer, so that the text received before a failure can be printed."""

    def __init__(self) -> None:
        self.text = ""

    def on_event(self, event: RunEvent) -> None:
        if isinstance(event, TextDelta):
            self.text += event.text
        elif isinstance(event, AnswerRestarted):
            self.text = ""
            click.echo(retry_notice(event.problem), err=True)


def _answer_json(chat: ChatConversation, response: PromptResponse[str]) -> dict[str, Any]:
    view = chat.last_view() or response.view
    explanation = view.explain()
    return {
        "text": response.text,
        "finish": response.finish,
        "refusal": response.refusal,
        "provider": chat.adapter.name,
        "model": chat.adapter.model,
        "usage": asdict(response.usage),
        "view": {
            "messages": len(view.curated),
            "tokens": explanation.view_tokens,
            "record_messages": len(view.record),
            "record_tokens": explanation.record_tokens,
            "cuts": [
                {"status": cut.status.value, "reason": cut.reason, "messages": cut.messages, "tokens": cut.tokens}
                for cut in cuts_of(explanation.lines)
            ],
            "violations": [
                {"guarantee": violation.guarantee.value, "detail": violation.detail} for violation in view.violations
            ],
        },
        "conversation": chat.id,
    }
