"""`minutebook chat`: talk to a model, and see what it is sent.

One question, one answer: for scripts.
"""

import json
import shlex
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from minutebook.agent.events import AnswerRestarted, RunEvent
from minutebook.agent.messages import PromptResponse, TextDelta
from minutebook.cli.chat.conversation import Talk
from minutebook.cli.chat.display import Voice, asking_again
from minutebook.cli.commands.view import cuts_of
from minutebook.cli.exits import Command, exit_code
from minutebook.cli.interrupts import Stops
from minutebook.cli.options import json_option, manager_options
from minutebook.cli.screen import console
from minutebook.errors import InvalidSetting, ProviderFailed

if TYPE_CHECKING:
    from minutebook.cli.providers import Access


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
@click.option(
    "--continue", "resume", is_flag=True,
    help="Go on with the newest chat, or with that of --transcript. Example: minutebook chat --continue",
)  # fmt: skip
@click.option(
    "--transcript", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Where the chat is kept; by default in a new file in $XDG_STATE_HOME/minutebook/chats or "
    "~/.local/state/minutebook/chats. Example: --transcript tea.jsonl",
)  # fmt: skip
@click.option(
    "-p", "--print", "once", is_flag=True,
    help="Answer PROMPT and end, also on a terminal. Example: minutebook chat -p 'Why is the sky blue?' -m gpt-4o",
)  # fmt: skip
@json_option(
    "Answer PROMPT and end; print one JSON document with the answer, its tokens and what was sent. "
    "Example: minutebook chat 'Why is the sky blue?' -m gpt-4o --json"
)
@click.pass_context
def command(
    ctx: click.Context,
    prompt: str | None,
    model: str | None,
    base_url: str | None,
    provider: str | None,
    managers: tuple[str, ...],
    max_tokens: int | None,
    system: str | None,
    resume: bool,
    transcript: Path | None,
    once: bool,
    as_json: bool,
) -> None:
    """Talk to a model; it has no tools. PROMPT is the first thing said.

    In the chat /context shows what fills the window, /view what was last sent, /help the rest. Ctrl-C stops an answer.
    Everything said is kept as it is said, and --continue goes on with it.

    Where stdin or stdout is no terminal, or with --print or --json, PROMPT is answered and that is all; - reads it from
    stdin. The key is read from OPENAI_API_KEY, or for Anthropic from ANTHROPIC_API_KEY.

    Example: minutebook chat -m gpt-4o --max-tokens 8000
    """
    once = once or as_json or prompt == "-" or not (sys.stdin.isatty() and sys.stdout.isatty())
    text = _question(prompt, once=once)
    if system is not None and not system.strip():
        raise InvalidSetting("--system", system, "some text, or leave it out")
    from minutebook.cli.chat.conversation import Talk
    from minutebook.cli.chat.log import ChatLog, new_chat, newest_chat
    from minutebook.cli.interrupts import Stops
    from minutebook.cli.providers import access_to
    from minutebook.conversation.policy import manager_from_texts

    manager = manager_from_texts(managers, max_tokens)
    with ExitStack() as opened:
        log = opened.enter_context(ChatLog.resume(transcript or newest_chat())) if resume else None
        model = model or (log.model if log else None)
        if model is None:
            raise click.UsageError("Missing option '-m' / '--model': the model to ask, such as -m gpt-4o.")
        access = access_to(provider or (log.provider if log else None) or "openai", base_url)
        adapter = access.adapter(model)
        log = log or opened.enter_context(ChatLog.create(transcript or new_chat()))
        if log.torn:
            _warn(f"{log.path} ends with {log.torn} bytes of a message that was never finished; all before it is there")
        talk = Talk(adapter, manager, max_tokens)
        talk.begin(log, system)
        stops = opened.enter_context(Stops())
        opened.callback(lambda: stops.run(adapter.aclose()))
        if text is not None and once:
            _answer(ctx, talk, stops, text, log.path, access, as_json=as_json)
        else:
            from minutebook.cli.chat.repl import ChatLoop

            ChatLoop(talk, stops, log, access).run(text, farewell=_farewell(transcript, base_url))


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


def _answer(
    ctx: click.Context, talk: "Talk", stops: "Stops", text: str, path: Path, access: "Access", *, as_json: bool
) -> None:

    try:
        answer_once(talk, stops, text, path, as_json=as_json)
    except ProviderFailed as error:
        access.complain(error, as_json=as_json)
        ctx.exit(exit_code(error))


def _warn(text: str) -> None:
    click.echo(f"{click.style('warning:', fg='yellow', bold=True)} {text}", err=True)


def _farewell(transcript: Path | None, base_url: str | None) -> str:
    """How to go on another time."""
    options = {"--transcript": transcript, "--base-url": base_url}
    given = [f" {name} {shlex.quote(str(value))}" for name, value in options.items() if value is not None]
    return f"go on with: minutebook chat --continue{''.join(given)}"


def answer_once(talk: Talk, stops: Stops, text: str, path: Path, *, as_json: bool) -> None:
    """Ask, and print the answer: as it comes on a terminal, whole where a program reads it."""
    out = console()
    if as_json:
        response = stops.run(talk.ask(text, _Heard().hear))
        click.echo(json.dumps(_document(talk, response, path), indent=2))
    elif out.is_terminal:
        voice = Voice(out)
        try:
            stops.run(talk.ask(text, voice.hear))
        finally:
            voice.end()
    else:
        heard = _Heard()
        try:
            heard.text = stops.run(talk.ask(text, heard.hear)).text
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


def _document(talk: Talk, response: PromptResponse[str], path: Path) -> dict[str, Any]:
    view = talk.sent() or response.view
    explanation = view.explain()
    return {
        "text": response.text,
        "finish": response.finish,
        "refusal": response.refusal,
        "provider": talk.adapter.name,
        "model": talk.adapter.model,
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
        "transcript": str(path),
    }
