"""`minutebook tokens`: count the tokens of conversations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from minutebook.agent.messages import Usage, usage_from
from minutebook.cli.exits import Command
from minutebook.cli.files import ConversationFiles, FileConversation
from minutebook.cli.options import InputFile, conversation_files, emit, flag, json_option, model_option
from minutebook.cli.screen import ROLE_STYLES, console, headed_table, percent, preview, role_bars, tokens_by_role
from minutebook.record.exchange import exchanges, turn_count
from minutebook.tokens.counter import ExactCounter, ScaledCounter, TokenCounter

LARGEST_MESSAGES = 5
MAX_ROWS = 20


@click.command("tokens", cls=Command, short_help="Count tokens, in total, by role and by message.")
@conversation_files
@model_option
@flag(
    "--all",
    "show_all",
    help_text=f"Show all conversations, not only the {MAX_ROWS} largest. Example: minutebook tokens log.jsonl --all",
)
@json_option(
    "Print all conversations with their totals, roles and largest messages as JSON. Example: minutebook tokens log.jsonl --json"
)
def command(files: Sequence[InputFile], from_format: str | None, model: str | None, show_all: bool) -> int:
    """Count the tokens of each conversation of the files: in total, by role, and those of the largest messages.

    A message counts as the tokens of its text plus 4, plus 8 for each tool call. Providers count slightly differently. If
    the file has the usage that the provider reported, its total is shown too.

    Example: minutebook tokens log.jsonl --model claude-sonnet-4-5
    """
    names, counts = [], []
    conversations = ConversationFiles(files, from_format)
    for conversation in conversations:
        names.append(conversations.title(conversation))
        counts.append(token_counts(conversation, model))
    emit(
        {
            "tokens": sum(entry["tokens"] for entry in counts),
            "conversations": counts,
            "skipped": conversations.skipped,
        },
        lambda: (
            _show_conversation(names[0], counts[0])
            if len(counts) == 1
            else _show_conversations(counts, show_all=show_all)
        ),
    )
    return conversations.report_skipped()


def token_counts(conversation: FileConversation, model: str | None) -> dict[str, Any]:
    """The counts of a conversation, as JSON data."""
    from minutebook import counter_for

    model = model or conversation.model
    counter = counter_for(model)
    tokens = list(map(counter.message, conversation.messages))
    roles = [str(message.get("role", "")) for message in conversation.messages]
    largest = sorted(range(len(tokens)), key=lambda index: (-tokens[index], index))[:LARGEST_MESSAGES]
    return {
        **conversation.source,
        "messages": len(tokens),
        "turns": turn_count(conversation.messages),
        "exchanges": len(exchanges(conversation.messages)),
        "tokens": sum(tokens),
        "by_role": tokens_by_role(zip(roles, tokens, strict=True)),
        "largest": [
            {
                "message": index,
                "role": roles[index],
                "tokens": tokens[index],
                "preview": preview(conversation.messages[index]),
            }
            for index in largest
        ],
        "usage": usage_json(conversation),
        "counter": counter.name,
        "counter_reason": counter_reason(counter, model),
    }


def usage_json(conversation: FileConversation) -> dict[str, int] | None:
    """The sum of the usage that the file has, as JSON data; None if it has none."""
    if not conversation.usage:
        return None
    total = sum(map(usage_from, conversation.usage), Usage())
    return {"calls": len(conversation.usage), **asdict(total)}


def usage_text(usage: Mapping[str, int]) -> str:
    return (
        f"reported by the provider in {usage['calls']:,} calls: {usage['input_tokens']:,} input tokens "
        f"({usage['cached_tokens']:,} cached), {usage['output_tokens']:,} output tokens"
    )


def counter_reason(counter: TokenCounter, model: str | None) -> str:
    """Whether the counter is exact, and why it was selected."""
    if model is None:
        return f"{counter.name}, the default if no model is named"
    if isinstance(counter, ExactCounter):
        return f"exact: {counter.name} is the tokenizer of {model}"
    if isinstance(counter, ScaledCounter) and "claude" in model.lower():
        return f"estimated: the tokenizer of {model} is not public; {counter.name} is based on measurements"
    return f"estimated: {model} is unknown; {counter.name} rarely counts too low"


def _show_conversation(name: str, entry: dict[str, Any]) -> None:
    out = console()
    out.print(Text(f"{name}: {entry['tokens']:,} tokens", "bold"))
    out.print(f"messages {entry['messages']:,}, turns {entry['turns']:,}, exchanges {entry['exchanges']:,}")
    if entry["usage"]:
        out.print(usage_text(entry["usage"]))
    out.print(Text(f"counter: {entry['counter_reason']}\n", "dim"))
    if entry["by_role"]:
        out.print(role_bars({"tokens": entry["by_role"]}, out.width))
    table = headed_table(expand=True)
    for title in ("#", "role", "tokens", "share"):
        table.add_column(title, justify="left" if title == "role" else "right", no_wrap=True)
    table.add_column("largest messages", ratio=1, no_wrap=True, overflow="ellipsis")
    for part in entry["largest"]:
        share = percent(part["tokens"], entry["tokens"])
        table.add_row(str(part["message"]), part["role"], f"{part['tokens']:,}", share, Text(part["preview"]))
    out.print(table)


def _show_conversations(counts: list[dict[str, Any]], *, show_all: bool) -> None:
    out = console()
    has_several_files = len({entry["file"] for entry in counts}) > 1
    largest = sorted(range(len(counts)), key=lambda index: -counts[index]["tokens"])
    shown = range(len(counts)) if show_all else largest[:MAX_ROWS]
    roles = [role for role in ROLE_STYLES if any(role in entry["by_role"] for entry in counts)]
    table = headed_table(expand=True)
    table.add_column("conversation", ratio=1, no_wrap=True, overflow="ellipsis")
    for title in ("messages", "turns", "tokens", *roles):
        table.add_column(title, justify="right", no_wrap=True)
    for index in shown:
        entry = counts[index]
        file = f"{entry['file']}: " if has_several_files else ""
        table.add_row(Text(f"{file}{entry['index']} {entry['id'] or ''}"), *_figures([entry], roles))
    table.add_section()
    table.add_row(f"all {len(counts):,}", *_figures(counts, roles), style="bold")
    out.print(table)
    if len(shown) < len(counts):
        out.print(Text(f"the {len(shown)} largest of {len(counts):,} conversations; --all shows all", "dim"))
    usages = [entry["usage"] for entry in counts if entry["usage"]]
    if usages:
        out.print(usage_text({name: sum(usage[name] for usage in usages) for name in usages[0]}))
    for reason in dict.fromkeys(entry["counter_reason"] for entry in counts):
        out.print(Text(f"counter: {reason}", "dim"))


def _figures(entries: Iterable[dict[str, Any]], roles: Iterable[str]) -> list[str]:
    entries = list(entries)
    figures = [sum(entry[name] for entry in entries) for name in ("messages", "turns", "tokens")]
    figures += [sum(entry["by_role"].get(role, 0) for entry in entries) for role in roles]
    return [f"{figure:,}" for figure in figures]
