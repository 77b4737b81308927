"""One question, one answer: for scripts."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from minutebook.agent.events import AnswerRestarted, RunEvent
from minutebook.agent.request import TextDelta
from minutebook.agent.response import PromptResponse
from minutebook.cli.cuts import cuts_of
from minutebook.cli.screen import console
from minutebook.cli.stops import Stops
from minutebook.cli.talk import Talk
from minutebook.cli.voice import Voice, asking_again


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
