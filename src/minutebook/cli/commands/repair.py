"""`minutebook repair`: repair conversations that a provider would reject."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import click

from minutebook.cli.exits import EXIT_FINDINGS, Command
from minutebook.cli.files import ConversationReader, FileConversation
from minutebook.cli.options import dry_run_option, files_argument, flag, is_json, json_option, provider_option
from minutebook.cli.progress import read_progress
from minutebook.cli.rewrite import replace_file, rewrite
from minutebook.record.finding import FindingKind, errors
from minutebook.record.message import Message, Provider
from minutebook.record.repairs import repair
from minutebook.record.validation import check


@click.command("repair", cls=Command, short_help="Repair conversations that a provider would reject.")
@files_argument
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
    files: Sequence[str], provider: str, write: bool, output: Path | None, dry_run: bool, keep_open: bool
) -> int:
    """Repair what a provider would reject, and print the conversations in the format of FILE.

    Late results are moved to their calls, unanswered calls get a placeholder result, missing and duplicate ids are
    replaced. Orphan and duplicate results and messages with an unknown role are dropped. Nothing else changes: a
    conversation that needs no repair is printed byte for byte. In an export, folds and pins of a repaired conversation are
    dropped. The repairs are reported on stderr. The exit code is 6 if problems remain that cannot be repaired, such as a
    conversation without messages. Several files require --write or --dry-run.

    Example: minutebook repair log.jsonl --write
    """
    if write and output:
        raise click.UsageError("--write and -o cannot be combined.")
    if len(files) > 1 and not (write or dry_run):
        raise click.UsageError("several files require --write or --dry-run.")
    if write and "-" in files:
        raise click.UsageError("--write cannot replace stdin; redirect stdout or use -o OUT.")
    repairer = _FileRepairer(
        "anthropic" if provider == "all" else provider,  # type: ignore[arg-type]
        keep_open,
        name_files=len(files) > 1,
        dry_run=dry_run,
    )
    for file in files:
        with read_progress(file) as advance:
            reader = ConversationReader(file, advance)
            chunks = rewrite(reader, repairer.repair)
            if dry_run:
                for _ in chunks:
                    pass
            elif target := Path(file).resolve() if write else output:
                _write_file(chunks, reader, repairer, target)
            else:
                sys.stdout.flush()
                sys.stdout.buffer.writelines(chunks)
                sys.stdout.buffer.flush()
    repairer.print_report(err=not (write or output or dry_run))
    return EXIT_FINDINGS if repairer.remaining else 0


def _write_file(chunks: Iterator[bytes], reader: ConversationReader, repairer: "_FileRepairer", target: Path) -> None:
    in_place = reader.source != "-" and Path(reader.source).resolve() == target.resolve()
    repaired_before = len(repairer.repaired)
    first = next(chunks, b"")  # after the first chunk, `reader.gzipped` is set
    gzipped = reader.gzipped if in_place else target.suffix == ".gz"
    all_chunks = chain([first], chunks)
    replace_file(
        target,
        all_chunks,
        gzipped=gzipped,
        is_needed=lambda: len(repairer.repaired) > repaired_before or not in_place,
    )


@dataclass
class _FileRepairer:
    """Repairs conversations and collects the report."""

    provider: Provider
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

    def repair(self, conversation: FileConversation) -> Sequence[Message] | None:
        """Return the repaired messages, or None if the conversation needs no repair."""
        self.conversations += 1
        repaired = repair(conversation.messages, provider=self.provider, keep_open=self.keep_open)
        name = f"{conversation.file}: {conversation.name}" if self.name_files else conversation.name
        if repaired.repairs:
            repairs = [
                {"message": item.index, "kind": item.kind.value, "action": item.action.value, "call_id": item.call_id}
                for item in repaired.repairs
            ]
            self.repaired.append({**conversation.source, "repairs": repairs})
            self.repaired_lines.append(click.style(name, bold=True))
            self.repaired_lines += [f"  {item}" for item in repaired.repairs]
        remaining = errors(check(repaired.messages, provider=self.provider))
        if self.keep_open:
            remaining = [finding for finding in remaining if finding.kind is not FindingKind.DANGLING_CALL]
        if remaining:
            findings = list(map(str, remaining))
            self.remaining.append({**conversation.source, "findings": findings})
            self.remaining_lines.append(f"{name}: cannot be repaired: {'; '.join(findings)}")
        return repaired.messages if repaired.repairs else None

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
