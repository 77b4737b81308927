"""`minutebook view`: compare a conversation with the view that a model would get."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import click
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from minutebook import Transcript, View
from minutebook.cli.commands.tokens import usage_json, usage_text
from minutebook.cli.exits import Command
from minutebook.cli.files import ConversationFiles, FileConversation
from minutebook.cli.options import (
    InputFile,
    conversation_files,
    emit,
    flag,
    json_option,
    manager_options,
    model_option,
    provider_option,
)
from minutebook.cli.screen import STATUS_STYLES, console, headed_table, percent, preview, role_bars, tokens_by_role
from minutebook.conversation.policy import manager_from_texts
from minutebook.errors import InvalidSetting
from minutebook.history.curation import NoteStatus
from minutebook.history.explanation import ExplanationLine
from minutebook.record.message import is_user


class Cut(NamedTuple):
    """Messages that were changed or left out with the same status and for the same reason."""

    status: NoteStatus
    reason: str
    messages: int
    tokens: int
    """Tokens saved."""


def cuts_of(lines: Iterable[ExplanationLine]) -> list[Cut]:
    """The cuts of a view, by tokens saved in descending order."""
    messages: Counter[tuple[NoteStatus, str]] = Counter()
    saved: Counter[tuple[NoteStatus, str]] = Counter()
    for line in lines:
        if line.status is not NoteStatus.SENT:
            messages[line.status, line.reason] += 1
            saved[line.status, line.reason] += line.tokens - line.sent_tokens
    return [Cut(*key, messages[key], tokens) for key, tokens in saved.most_common()]


@click.command("view", cls=Command, short_help="Compare a conversation with what a model would get.")
@conversation_files
@manager_options
@model_option
@provider_option(allow_all=False, help_text="Provider whose message rules the view must satisfy.")
@click.option(
    "--conversation", metavar="ID|INDEX",
    help="Id or index (from 0) of a conversation in FILE. Default: the first one. "
    "Example: --conversation 3",
)  # fmt: skip
@flag(
    "--all",
    "show_all",
    help_text="Show a row for every message. Default: in long conversations, ranges are one row. Example: minutebook view log.json --all",
)
@flag(
    "--messages",
    "only_messages",
    help_text="Print only the messages of the view, as JSON. Example: minutebook view log.json --max-tokens 8000 --messages | jq length",
)
@click.option(
    "--html", "html_file", metavar="FILE", type=click.Path(dir_okay=False),
    help="Write one HTML file to share, with the messages, the reasons and the timeline of a replay. "
    "Without --manager and --max-tokens, the budget is the model's context window. Example: --html session.html",
)  # fmt: skip
@click.option(
    "--redact", multiple=True, type=click.Choice(["tools", "texts"]),
    help="Leave the names of tools or all texts out of the HTML file. Can be repeated. Example: --redact texts",
)  # fmt: skip
@json_option(
    "Print the status and reason of every message, and the messages of the view, as JSON. Example: minutebook view log.json --json"
)
def command(
    files: Sequence[InputFile],
    from_format: str | None,
    managers: tuple[str, ...],
    max_tokens: int | None,
    model: str | None,
    provider: str | None,
    conversation: str | None,
    show_all: bool,
    only_messages: bool,
    html_file: str | None,
    redact: tuple[str, ...],
) -> int:
    """Compare a conversation with the view that a model would get, with a reason for every difference.

    With several files, one conversation of each file is shown. With a folder, all its conversations are listed;
    --conversation ID shows one of them.

    Example: minutebook view log.jsonl --max-tokens 32000
    """
    from minutebook import counter_for, view_of

    conversations = ConversationFiles(files, from_format)
    manager = manager_from_texts(managers, max_tokens)
    if conversation is None and any(file.is_in_folder for file in files):
        _list_conversations(conversations, show_all=show_all)
        return conversations.report_skipped()
    if redact and html_file is None:
        raise click.UsageError("--redact requires --html FILE, because other output is not redacted.")
    if html_file is not None:
        _write_html(conversations, conversation, html_file, (managers, max_tokens, model), redact)
        return conversations.report_skipped()
    for selected in _select_conversations(conversations, conversation):
        counter = counter_for(model or selected.model)
        view = view_of(
            Transcript.of(selected.messages, counter=counter),
            manager,
            max_tokens=max_tokens,
            provider=selected.provider(provider),
        )
        if only_messages:
            click.echo(json.dumps(view.messages, indent=2))
            continue
        name, usage = conversations.title(selected), usage_json(selected)
        document = _view_json(view, selected, repr(manager), counter.name)
        emit(
            {**document, "usage": usage, "skipped": conversations.skipped},
            partial(show, view, name, counter.name, show_all=show_all, usage=usage),
        )
    return conversations.report_skipped()


def _write_html(
    conversations: ConversationFiles,
    id_or_index: str | None,
    path: str,
    policy: tuple[tuple[str, ...], int | None, str | None],
    redact: Sequence[str],
) -> None:
    from minutebook.cli.inspector import policy_of_options, write_html

    if len(conversations.files) > 1 and not conversations.files[0].is_in_folder:
        names = " ".join(file.name for file in conversations.files)
        raise InvalidSetting("FILE", names, "one file with --html, or a folder with --conversation ID")
    selected = next(_select_conversations(conversations, id_or_index))
    size = write_html(selected, path, policy_of_options(*policy), redact)
    emit({"file": path, "bytes": size}, lambda: click.echo(f"wrote {path}, {size:,} bytes"))


def _select_conversations(conversations: ConversationFiles, id_or_index: str | None) -> Iterator[FileConversation]:
    """The conversation of each file with this id or, if there is none, with this index. In a folder, only the first match."""
    count = selected_count = 0
    for file in conversations.files:
        selected = None
        for count, conversation in enumerate(conversations.read(file), 1):
            if id_or_index is None:
                selected = selected or conversation
                if count == 2:
                    note = (
                        "the file has several conversations, this is the first; use --conversation ID|INDEX for another"
                    )
                    click.echo(note, err=True)
                    break
            elif conversation.id == id_or_index:
                selected = conversation
                break
            elif id_or_index.isdecimal() and conversation.index == int(id_or_index) and not file.is_in_folder:
                selected = conversation
        if selected is not None:
            selected_count += 1
            yield selected
            if file.is_in_folder:
                return
        elif not file.is_in_folder:
            expected = f"an id in {file.name}, or an index from 0 to {count - 1}"
            raise InvalidSetting("--conversation", id_or_index, expected)
    if not selected_count:
        raise InvalidSetting("--conversation", id_or_index, "an id that is listed without --conversation")


def _list_conversations(conversations: ConversationFiles, *, show_all: bool) -> None:
    """Print a table of the conversations of a folder, the newest first."""
    rows = sorted(map(_list_row, conversations), key=lambda row: row["created_at"] or "", reverse=True)
    emit(
        {"conversations": rows, "skipped": conversations.skipped},
        lambda: _show_list(rows if show_all else rows[:MAX_ROWS], len(rows)),
    )


def _list_row(conversation: FileConversation) -> dict[str, Any]:
    source = conversation.conversation
    first_user = next((message for message in source.messages if is_user(message)), None)
    return {
        **conversation.source,
        "title": source.title or (preview(first_user) if first_user is not None else None),
        "model": source.model,
        "created_at": source.created_at.isoformat() if source.created_at else None,
        "messages": len(source.items),
        "usage": usage_json(conversation),
    }


def _show_list(rows: Sequence[dict[str, Any]], total: int) -> None:
    out = console()
    table = headed_table(expand=True)
    for title in ("started", "id", "messages", "input tokens", "output"):
        table.add_column(title, justify="left" if title in {"started", "id"} else "right", no_wrap=True)
    table.add_column("title", ratio=1, no_wrap=True, overflow="ellipsis")
    for row in rows:
        usage = row["usage"]
        tokens = [f"{usage[name]:,}" for name in ("input_tokens", "output_tokens")] if usage else ["", ""]
        started = (row["created_at"] or "")[:16].replace("T", " ")
        table.add_row(
            started, Text(row["id"] or row["file"]), f"{row['messages']:,}", *tokens, Text(row["title"] or "")
        )
    out.print(table)
    if len(rows) < total:
        out.print(Text(f"the {len(rows)} newest of {total:,} conversations; --all shows all", "dim"))
    out.print(Text("--conversation ID shows one of them", "dim"))


def _view_json(view: View, selected: FileConversation, manager: str, counter: str) -> dict[str, Any]:
    explanation = view.explain()
    return {
        "conversation": selected.source,
        "manager": manager,
        "counter": counter,
        **explanation.to_json(),
        "violations": [
            {"guarantee": violation.guarantee.value, "detail": violation.detail} for violation in view.violations
        ],
        "sent": view.messages,
    }


MAX_ROWS = 40
"""Conversations with at most this many messages are shown with one row per message."""
MIN_GROUP = 4
"""Minimum number of messages that are shown as one row."""


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A row of the table: one message, or consecutive messages with the same status."""

    lines: tuple[ExplanationLine, ...]

    @property
    def line(self) -> ExplanationLine:
        """The first line whose status is not "sent", else the first line."""
        return next((line for line in self.lines if line.status is not NoteStatus.SENT), self.lines[0])

    @property
    def index_range(self) -> str:
        indexes = [line.index for line in self.lines if line.index is not None]
        if not indexes:
            return "+"
        return f"{indexes[0]}-{indexes[-1]}" if len(indexes) > 1 else f"{indexes[0]}"

    @property
    def role(self) -> str:
        return self.line.role or "?" if len(self.lines) == 1 else f"{len(self.lines)} messages"

    @property
    def status(self) -> str:
        count = sum(line.status is self.line.status for line in self.lines)
        return self.line.status.value if count == len(self.lines) else f"{count} {self.line.status.value}"


def show(view: View, name: str, counter: str, *, show_all: bool, usage: Mapping[str, int] | None = None) -> None:
    """Print the table of messages and the totals of the record and the view."""
    out = console()
    explanation = view.explain()
    rows = rows_of(view.record, explanation.lines, show_all=show_all)
    out.print(Text(f"{name}, counted with {counter}", "bold"))
    out.print(table_of(rows, view.record, added=_added_previews(view)))
    show_totals(out, view, explanation.lines)
    if usage:
        out.print(usage_text(usage))


def rows_of(record: Transcript, lines: Sequence[ExplanationLine], *, show_all: bool) -> list[ViewRow]:
    """One row per message or, in a long conversation, per group of exchanges with the same status."""
    if show_all or len(lines) <= MAX_ROWS:
        return [ViewRow((line,)) for line in lines]
    rows: list[ViewRow] = []
    for _, group in groupby(_exchanges(record, lines), key=_group_key):
        group_lines = [line for exchange in group for line in exchange]
        has_request = any(line.role == "user" and line.status is NoteStatus.SENT for line in group_lines)
        is_one_row = len(group_lines) >= MIN_GROUP and not has_request
        rows += [ViewRow(tuple(group_lines))] if is_one_row else [ViewRow((line,)) for line in group_lines]
    return rows


def _exchanges(record: Transcript, lines: Sequence[ExplanationLine]) -> Iterable[list[ExplanationLine]]:
    """The lines grouped by exchange. A message that the view added is a separate group."""

    def start(line: ExplanationLine) -> object:
        return object() if line.index is None else record.exchange_of(line.index).start

    return [list(group) for _, group in groupby(lines, key=start)]


def _group_key(exchange: Sequence[ExplanationLine]) -> object:
    """The statuses of an exchange, except "sent". A user message that is sent is never grouped with others."""
    changes = {(line.status, line.reason) for line in exchange if line.status is not NoteStatus.SENT}
    if not changes and exchange[0].role == "user":
        return object()
    return frozenset(changes)


def table_of(rows: Sequence[ViewRow], record: Transcript, added: Sequence[str] = ()) -> Table:
    table = headed_table(expand=True)
    for title, justify in (
        ("#", "right"),
        ("role", "left"),
        ("status", "left"),
        ("record", "right"),
        ("view", "right"),
    ):
        table.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("content, or why it was changed", ratio=1)
    added_previews = iter(added)
    for row in rows:
        line = row.line
        color = STATUS_STYLES[line.status]
        content = Text(no_wrap=True, overflow="ellipsis")
        if len(row.lines) == 1:
            content.append(preview(record[line.index]) if line.index is not None else next(added_previews, ""))
        elif line.status is NoteStatus.SENT:
            content.append(_role_counts(row.lines), "dim")
        cell = Group(*([content] if content.plain else []), *([Text(line.reason, color)] if line.reason else []))
        tokens, sent_tokens = sum(item.tokens for item in row.lines), sum(item.sent_tokens for item in row.lines)
        status = Text(row.status, color)
        table.add_row(row.index_range, row.role, status, f"{tokens:,}", f"{sent_tokens:,}", cell)
    return table


def show_totals(out: Console, view: View, lines: Sequence[ExplanationLine]) -> None:
    before, after = sum(line.tokens for line in lines), sum(line.sent_tokens for line in lines)
    messages = len(view.record)
    out.print(
        f"messages  {messages:,} → {len(view.curated):,} ({percent(len(view.curated), messages)})\n"
        f"tokens    {before:,} → {after:,} ({percent(after, before)})\n"
    )
    bars = {
        "record": tokens_by_role((line.role, line.tokens) for line in lines),
        "view": tokens_by_role((line.role, line.sent_tokens) for line in lines),
    }
    out.print(role_bars(bars, out.width))
    for violation in view.violations:
        out.print(Text(f"repaired violation: {violation}", "yellow"))


def _added_previews(view: View) -> list[str]:
    origins = view.curated.origins
    return [preview(message) for message, origin in zip(view.curated, origins, strict=True) if origin is None]


def _role_counts(lines: Sequence[ExplanationLine]) -> str:
    counts = Counter(line.role for line in lines)
    return ", ".join(f"{count} {role}" for role, count in counts.items())
