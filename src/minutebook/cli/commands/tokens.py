"""`minutebook tokens`: what a conversation costs, and where."""

from collections.abc import Iterable
from typing import Any

import click
from rich.text import Text

from minutebook.cli.exits import Command
from minutebook.cli.files import Conversation, Reading
from minutebook.cli.options import emit, file_argument, flag, json_option, model_option
from minutebook.cli.progress import progress
from minutebook.cli.screen import ROLE_LOOK, by_role, console, headed_table, percent, preview, role_bars
from minutebook.record.exchange import exchanges, turn_count
from minutebook.tokens.counter import ExactCounter, ScaledCounter, TokenCounter

LARGEST = 5
SHOWN = 20


@click.command("tokens", cls=Command, short_help="Tokens in all, by role, and the largest messages.")
@file_argument
@model_option
@flag(
    "--all",
    "every",
    help_text=f"A row for every conversation, not only the {SHOWN} largest. Example: minutebook tokens log.jsonl --all",
)
@json_option(
    "Print one JSON document: every conversation with its totals, roles and largest messages. Example: minutebook tokens log.jsonl --json"
)
def command(file: str, model: str | None, every: bool) -> None:
    """Count the tokens of each conversation of FILE: in all, by role, and the largest messages.

    Counts follow the rule of 4 a message and 8 a tool call besides the text; a provider's own count differs by a little.

    Example: minutebook tokens log.jsonl --model claude-sonnet-4-5
    """
    with progress(file) as advance:
        counted = [counts_of(conversation, model) for conversation in Reading(file, advance)]
    conversations = [{key: value for key, value in entry.items() if key != "name"} for entry in counted]
    emit(
        {"tokens": sum(entry["tokens"] for entry in counted), "conversations": conversations},
        lambda: _show_one(counted[0]) if len(counted) == 1 else _show_many(counted, every=every),
    )


def counts_of(conversation: Conversation, model: str | None) -> dict[str, Any]:
    """Everything there is to count about a conversation, as JSON data."""
    from minutebook import counter_for

    named = model or conversation.model
    counter = counter_for(named)
    tokens = list(map(counter.message, conversation.messages))
    roles = [str(message.get("role", "")) for message in conversation.messages]
    largest = sorted(range(len(tokens)), key=lambda place: (-tokens[place], place))[:LARGEST]
    return {
        "index": conversation.place,
        "id": conversation.id,
        "name": conversation.name,
        "messages": len(tokens),
        "turns": turn_count(conversation.messages),
        "exchanges": len(exchanges(conversation.messages)),
        "tokens": sum(tokens),
        "by_role": by_role(zip(roles, tokens, strict=True)),
        "largest": [
            {"message": at, "role": roles[at], "tokens": tokens[at], "preview": preview(conversation.messages[at])}
            for at in largest
        ],
        "counter": counter.name,
        "why": why(counter, named),
    }


def why(counter: TokenCounter, model: str | None) -> str:
    """Which counter was taken, and for what reason."""
    if model is None:
        return f"exact for {counter.name}, because no model is named"
    if isinstance(counter, ExactCounter):
        return f"exact: {counter.name} is the vocabulary of {model}"
    if isinstance(counter, ScaledCounter) and "claude" in model.lower():
        return f"estimated: the vocabulary of {model} is not public, {counter.name} is what was measured"
    return f"estimated: nothing is known of {model}, {counter.name} is least likely to be too low"


def _show_one(entry: dict[str, Any]) -> None:
    out = console()
    out.print(Text(f"{entry['name']}: {entry['tokens']:,} tokens", "bold"))
    out.print(f"messages {entry['messages']:,}, turns {entry['turns']:,}, exchanges {entry['exchanges']:,}")
    out.print(Text(f"counter: {entry['why']}\n", "dim"))
    if entry["by_role"]:
        out.print(role_bars({"tokens": entry["by_role"]}, out.width))
    table = headed_table(expand=True)
    for title in ("#", "role", "tokens", "share"):
        table.add_column(title, justify="left" if title == "role" else "right", no_wrap=True)
    table.add_column("the largest messages", ratio=1, no_wrap=True, overflow="ellipsis")
    for part in entry["largest"]:
        share = percent(part["tokens"], entry["tokens"])
        said = Text(part["preview"])
        table.add_row(str(part["message"]), part["role"], f"{part['tokens']:,}", share, said)
    out.print(table)


def _show_many(counted: list[dict[str, Any]], *, every: bool) -> None:
    out = console()
    largest = sorted(counted, key=lambda entry: (-entry["tokens"], entry["index"]))
    shown = counted if every else largest[:SHOWN]
    roles = [role for role in ROLE_LOOK if any(role in entry["by_role"] for entry in counted)]
    table = headed_table(expand=True)
    table.add_column("conversation", ratio=1, no_wrap=True, overflow="ellipsis")
    for title in ("messages", "turns", "tokens", *roles):
        table.add_column(title, justify="right", no_wrap=True)
    for entry in shown:
        table.add_row(Text(f"{entry['index']} {entry['id'] or ''}"), *_figures([entry], roles))
    table.add_section()
    table.add_row(f"all {len(counted):,}", *_figures(counted, roles), style="bold")
    out.print(table)
    if len(shown) < len(counted):
        out.print(Text(f"the {len(shown)} largest of {len(counted):,}; --all shows every one", "dim"))
    for reason in dict.fromkeys(entry["why"] for entry in counted):
        out.print(Text(f"counter: {reason}", "dim"))


def _figures(entries: Iterable[dict[str, Any]], roles: Iterable[str]) -> list[str]:
    entries = list(entries)
    figures = [sum(entry[name] for entry in entries) for name in ("messages", "turns", "tokens")]
    figures += [sum(entry["by_role"].get(role, 0) for entry in entries) for role in roles]
    return [f"{figure:,}" for figure in figures]
