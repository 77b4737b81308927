"""`minutebook view`: the record beside what a model would be sent."""

import json
from typing import TYPE_CHECKING, Any

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import file_argument, json_option, manager_options, model_option, provider_option
from minutebook.errors import InvalidSetting

if TYPE_CHECKING:
    from minutebook import View
    from minutebook.cli.reading import Conversation


@click.command("view", cls=Command, short_help="What a model would be sent, beside the record.")
@file_argument
@manager_options
@model_option
@provider_option(everyone=False, help_text="Who would be asked: the view is one that this provider accepts.")
@click.option(
    "--conversation", metavar="ID|INDEX",
    help="Which conversation of FILE, by its id or its place counted from 0; the first if not given. "
    "Example: --conversation 3",
)  # fmt: skip
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="A row for every message, however many there are. Example: minutebook view log.json --all",
)
@click.option(
    "--messages",
    "only_messages",
    is_flag=True,
    help="Print only the messages to send, as JSON, for the next program. Example: minutebook view log.json --max-tokens 8000 --messages | jq length",
)
@json_option(
    "Print one JSON document: what became of every message and why, and the messages to send. Example: minutebook view log.json --json"
)
def command(
    file: str,
    managers: tuple[str, ...],
    max_tokens: int | None,
    model: str | None,
    provider: str,
    conversation: str | None,
    every: bool,
    only_messages: bool,
    as_json: bool,
) -> None:
    """Show what a model would be sent of a conversation, beside the record, with a reason for every difference.

    Example: minutebook view log.jsonl --max-tokens 32000
    """
    from minutebook import counter_for, view_of
    from minutebook.cli.managers import manager_from

    manager = manager_from(managers, max_tokens)
    chosen = _chosen(file, conversation)
    counter = counter_for(model or chosen.model)
    view = view_of(
        chosen.messages,
        manager,
        max_tokens=max_tokens,
        provider=provider,  # type: ignore[arg-type]
        counter=counter,
    )
    if only_messages:
        click.echo(json.dumps(view.messages, indent=2))
    elif as_json:
        click.echo(json.dumps(_document(view, chosen, repr(manager), counter.name), indent=2))
    else:
        from minutebook.cli.viewtable import show

        show(view, chosen.name, counter.name, every=every)


def _chosen(file: str, wanted: str | None) -> "Conversation":
    """The conversation with this id or, where no id is the same, at this place."""
    from minutebook.cli.progress import progress
    from minutebook.cli.reading import Reading

    with progress(file) as advance:
        reading = Reading(file, advance)
        at_place = None
        for count, conversation in enumerate(reading, 1):
            if wanted is None:
                at_place = at_place or conversation
                if count == 2:
                    click.echo("the first of several conversations; --conversation ID|INDEX shows another", err=True)
                    break
            elif conversation.id == wanted:
                return conversation
            elif wanted.isdecimal() and conversation.place == int(wanted):
                at_place = conversation
    if at_place is None:
        raise InvalidSetting("--conversation", wanted, f"an id in {reading.name}, or a place from 0 to {count - 1}")
    return at_place


def _document(view: "View", chosen: "Conversation", manager: str, counter: str) -> dict[str, Any]:
    explanation = view.explain()
    return {
        "conversation": {"index": chosen.place, "id": chosen.id, "line": chosen.line},
        "manager": manager,
        "counter": counter,
        **explanation.to_json(),
        "breaches": [{"promise": breach.promise.value, "detail": breach.detail} for breach in view.breaches],
        "sent": list(view.messages),
    }
