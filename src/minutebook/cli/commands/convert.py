"""`minutebook convert`: write conversations in another format."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from minutebook.cli.exits import Command
from minutebook.cli.files import ConversationFiles, FileConversation
from minutebook.cli.options import InputFile, conversation_files, is_json, json_option
from minutebook.cli.rewrite import replace_file
from minutebook.errors import InvalidMessage
from minutebook.formats import convert, format_named
from minutebook.formats.registry import writer_of


@click.command("convert", cls=Command, short_help="Write conversations in another format.")
@conversation_files
@click.option(
    "--to",
    "to_format",
    metavar="FORMAT",
    required=True,
    help="Format of the output; `minutebook formats` lists those that can be written. Example: --to openai-chat",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT",
    help="Output file, gzipped if the name ends in .gz. It must not exist. Default: stdout. Example: -o chats.jsonl",
)  # fmt: skip
@click.option("-f", "--force", is_flag=True, help="Replace OUT if it exists. Example: -o chats.jsonl --force")
@json_option("Print what is lost as JSON, to stdout with -o, else to stderr. Example: -o chats.jsonl --json")
def command(
    files: Sequence[InputFile], from_format: str | None, to_format: str, output: Path | None, force: bool
) -> int:
    """Write the conversations of the files in another format, one per line.

    Data that the other format cannot express is lost. What is lost from each message is reported on stderr. The exit code
    is 6 if a part of a file was not understood.

    Example: minutebook convert ~/.claude/projects --to openai-chat -o sessions.jsonl
    """
    writer_of(format_named(to_format))
    if output is not None and output.exists() and not force:
        raise click.UsageError(f"{output} exists; --force replaces it.")
    conversations = ConversationFiles(files, from_format, prints_during_progress=output is None)
    reports: list[dict[str, Any]] = []
    lines = _lines(conversations, to_format, reports)
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()
    else:
        replace_file(output, lines, gzipped=output.suffix == ".gz")
    lossy_reports = [report for report in reports if report["lost"]]
    if is_json():
        document = {"conversations": len(reports), "lost": lossy_reports, "skipped": conversations.skipped}
        click.echo(json.dumps(document, indent=2), err=output is None)
    else:
        for report in lossy_reports:
            click.echo(f"{report['name']}: lost: {'; '.join(report['lost'])}", err=True)
        click.echo(f"converted {len(reports):,} conversations to {to_format}", err=True)
    return conversations.report_skipped()


def _lines(conversations: ConversationFiles, to_format: str, reports: list[dict[str, Any]]) -> Iterator[bytes]:
    """The converted conversations, one per line. A report of each is added to `reports`."""
    for conversation in conversations:
        try:
            converted = convert(conversation.conversation, to_format)
        except InvalidMessage as error:
            place = conversation.conversation.place or conversation.name
            conversations.skipped.append({"file": conversation.file, "place": place, "reason": str(error)})
            continue
        lost = [_with_place(text, conversation) for text in converted.lost]
        reports.append({**conversation.source, "name": conversations.title(conversation), "lost": lost})
        yield json.dumps(converted.value).encode() + b"\n"


def _with_place(text: str, conversation: FileConversation) -> str:
    """The description of a loss, such as "message 3: …", with the message's place in the file instead of its index."""
    message, colon, loss = text.partition(": ")
    index = message.removeprefix("message ")
    return f"{conversation.place(int(index))}{colon}{loss}" if colon and index.isdecimal() else text
