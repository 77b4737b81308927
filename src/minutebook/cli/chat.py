"""`minutebook chat`: talk to a model, and see what it is sent."""

import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from minutebook.cli.exits import Command, exit_code
from minutebook.cli.options import json_option, manager_options
from minutebook.errors import InvalidSetting, ProviderFailed

if TYPE_CHECKING:
    from minutebook.cli.providers import Access
    from minutebook.cli.stops import Stops
    from minutebook.cli.talk import Talk


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
    from minutebook.cli.chatlog import ChatLog, new_chat, newest_chat
    from minutebook.cli.managers import manager_from
    from minutebook.cli.providers import access_to
    from minutebook.cli.stops import Stops
    from minutebook.cli.talk import Talk

    manager = manager_from(managers, max_tokens)
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
            from minutebook.cli.chatloop import ChatLoop

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
    from minutebook.cli.chatonce import answer_once

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
