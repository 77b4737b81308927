"""`minutebook repair`: repair conversations that a provider would reject."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from minutebook.cli.exits import EXIT_FINDINGS, Command
from minutebook.cli.files import FileConversation
from minutebook.cli.options import (
    InputFile,
    conversation_files,
    dry_run_option,
    flag,
    is_json,
    json_option,
    provider_option,
)
from minutebook.cli.progress import read_progress
from minutebook.cli.rewrite import MessageEdit, replace_file, require_writable, rewrite
from minutebook.formats import Format, Source, detect, format_named
from minutebook.record.finding import FindingKind, errors
from minutebook.record.message import Message
from minutebook.record.repairs import Repaired, repair
from minutebook.record.validation import check


@click.command("repair", cls=Command, short_help="Repair conversations that a provider would reject.")
@conversation_files
@provider_option(allow_all=True, help_text='Provider whose rules the result must satisfy, or "all".')
@flag(
    "--write",
    help_text="Replace each FILE atomically. A file that needs no repair is not changed. Example: minutebook repair log.jsonl --write",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT",
    help="Output file, gzipped if the name ends in .gz. Default: stdout. Example: -o repaired.jsonl",
)  # fmt: skip
@dry_run_option
@flag(
    "--keep-open",
    help_text="Do not repair unanswered tool calls at the end of a conversation; their results may still come. Example: minutebook repair live.json --keep-open",
)
@json_option(
    "Print the report as JSON, to stdout with --write, -o or --dry-run, else to stderr. Example: minutebook repair log.jsonl --write --json"
)
def command(
    files: Sequence[InputFile],
    from_format: str | None,
    provider: str | None,
    write: bool,
    output: Path | None,
    dry_run: bool,
    keep_open: bool,
) -> int:
    """Repair what a provider would reject, and print the conversations in the format of FILE.

    Late results are moved to their calls, unanswered calls get a placeholder result, missing and duplicate ids are
    replaced. Orphan and duplicate results and messages with an unknown role are dropped. Nothing else changes: a
    conversation that needs no repair is printed byte for byte. In an export, folds and pins of a repaired conversation are
    dropped. The repairs are reported on stderr. The exit code is 6 if problems remain that cannot be repaired, such as a
    conversation without messages. A request that continues a response that the provider stores is not changed if it has
    results of earlier calls. Several files require --write or --dry-run. A file in a format that cannot be written is
    refused; convert it first.

    Example: minutebook repair log.jsonl --write
    """
    if write and output:
        raise click.UsageError("--write and -o cannot be combined.")
    if len(files) > 1 and not (write or dry_run):
        raise click.UsageError("several files require --write or --dry-run.")
    if write and any(file.path == "-" for file in files):
        raise click.UsageError("--write cannot replace stdin; redirect stdout or use -o OUT.")
    repairer = _FileRepairer(provider, keep_open, name_files=len(files) > 1, dry_run=dry_run)
    for file in files:
        with read_progress(file.path) as advance:
            source = Source(file.path, advance=advance)
            format_ = detect(source) if from_format is None else format_named(from_format)
            require_writable(format_, source.name)
            chunks = rewrite(source, format_, repairer.editor(file, format_))
            if dry_run:
                for _ in chunks:
                    pass
            elif target := Path(file.path).resolve() if write else output:
                _write_file(chunks, source, repairer, target)
            else:
                sys.stdout.flush()
                sys.stdout.buffer.writelines(chunks)
                sys.stdout.buffer.flush()
    repairer.print_report(err=not (write or output or dry_run))
    return EXIT_FINDINGS if repairer.remaining else 0


def _write_file(chunks: Iterator[bytes], source: Source, repairer: "_FileRepairer", target: Path) -> None:
    in_place = source.path is not None and source.path.resolve() == target.resolve()
    repaired_before = len(repairer.repaired)
    replace_file(
        target,
        chunks,
        gzipped=source.is_gzipped() if in_place else target.suffix == ".gz",
        is_needed=lambda: len(repairer.repaired) > repaired_before or not in_place,
    )


def _answers_earlier_calls(messages: Sequence[Message]) -> bool:
    """Whether a result answers a call that is not in the file. Repairing the messages would drop it."""
    return any(finding.kind is FindingKind.ORPHAN_RESULT for finding in check(messages))


@dataclass
class _FileRepairer:
    """Repairs conversations and collects the report."""

    provider: str | None
    """The provider whose rules apply; None: that of the format."""
    keep_open: bool
    name_files: bool
    """Whether the report names the file of each conversation."""
    dry_run: bool
    conversations: int = 0
    repaired: list[dict[str, Any]] = field(default_factory=list)
    """The repairs per conversation, as JSON data."""
    remaining: list[dict[str, Any]] = field(default_factory=list)
    """The problems per conversation that could not be repaired, as JSON data."""
    repaired_lines: list[str] = field(default_factory=list)
    remaining_lines: list[str] = field(default_factory=list)

    def editor(self, file: InputFile, format_: Format) -> MessageEdit:
        """The function that repairs the conversations of a file."""
        return lambda index, conversation: self._repair(FileConversation(conversation, file.path, index, format_))

    def _repair(self, conversation: FileConversation) -> Repaired | None:
        """The repaired messages, or None if the conversation needs no repair."""
        self.conversations += 1
        provider = conversation.provider(self.provider)
        if conversation.conversation.is_continuation and _answers_earlier_calls(conversation.messages):
            repaired = Repaired(conversation.messages, list(range(len(conversation.messages))), ())
        else:
            repaired = repair(conversation.messages, provider=provider, keep_open=self.keep_open)
        name = f"{conversation.file}: {conversation.name}" if self.name_files else conversation.name
        if repaired.repairs:
            repairs = [
                {
                    "message": item.index,
                    "place": conversation.place(item.index),
                    "kind": item.kind.value,
                    "action": item.action.value,
                    "call_id": item.call_id,
                }
                for item in repaired.repairs
            ]
            self.repaired.append({**conversation.source, "repairs": repairs})
            self.repaired_lines.append(click.style(name, bold=True))
            self.repaired_lines += [f"  {conversation.place(item.index)}: {item.what}" for item in repaired.repairs]
        remaining = errors(conversation.findings(self.provider, repaired.messages))
        if self.keep_open:
            remaining = [finding for finding in remaining if finding.kind is not FindingKind.DANGLING_CALL]
        if remaining:
            findings = list(map(str, remaining))
            self.remaining.append({**conversation.source, "findings": findings})
            self.remaining_lines.append(f"{name}: cannot be repaired: {'; '.join(findings)}")
        return repaired if repaired.repairs else None

    def print_report(self, *, err: bool) -> None:
        repairs = sum(len(entry["repairs"]) for entry in self.repaired)
        if is_json():
            summary = {"conversations": self.conversations, "repaired": len(self.repaired), "repairs": repairs}
            report = {"repaired": self.repaired, "remaining": self.remaining, "summary": summary}
            click.echo(json.dumps(report, indent=2), err=err)
            return
        action = "would be repaired" if self.dry_run else "repaired"
        total = f"{len(self.repaired):,} of {self.conversations:,} conversations {action}, {repairs:,} repairs"
        click.echo("\n".join([*self.repaired_lines, *self.remaining_lines, total]), err=True)
