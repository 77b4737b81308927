"""`minutebook repair`: conversations that a provider accepts, in the shape they came in."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import click

from minutebook.cli.exits import FINDINGS, Command
from minutebook.cli.files import Conversation, Reading, replace_file, rewritten
from minutebook.cli.options import file_argument, flag, is_json, json_option, provider_option
from minutebook.cli.progress import progress
from minutebook.record.finding import FindingKind, errors
from minutebook.record.message import Message, Provider
from minutebook.record.repairs import repair
from minutebook.record.validation import check


@click.command("repair", cls=Command, short_help="Put right what a provider would refuse.")
@file_argument
@provider_option(everyone=True, help_text="Whose rules to repair for; all means every one of them.")
@flag(
    "--write",
    help_text="Replace FILE, in one step; a file that needs no repair is not touched. Example: minutebook repair log.jsonl --write",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT",
    help="Write to this file, gzipped if its name ends in .gz. Example: -o repaired.jsonl",
)  # fmt: skip
@flag(
    "--keep-open",
    help_text="Leave calls alone that may still get their results: those at the very end. Example: minutebook repair live.json --keep-open",
)
@json_option(
    "Print the report as JSON: to stdout with --write or -o, where it is free, else to stderr. Example: minutebook repair log.jsonl --write --json"
)
def command(file: str, provider: str, write: bool, output: Path | None, keep_open: bool) -> int:
    """Put right what a provider would refuse, and print the conversations in the shape they came in.

    Late results move to their calls, unanswered calls get a result that says so, ids that are missing or used twice get
    new ones; only what answers nothing, or answers twice, is left out. Nothing else of the file changes: a conversation
    that needs no repair comes back byte for byte. What was done is reported on stderr. The exit code is 6 when
    something remains that cannot be repaired, such as a conversation without a single message.

    Example: minutebook repair log.jsonl --write
    """
    if write and output:
        raise click.UsageError("--write and -o exclude each other; give one of them.")
    if write and file == "-":
        raise click.UsageError("--write needs a file to replace, and stdin is none; redirect stdout or give -o OUT.")
    work = _Work("anthropic" if provider == "all" else provider, keep_open)  # type: ignore[arg-type]
    with progress(file) as advance:
        reading = Reading(file, advance)
        chunks = rewritten(reading, work.mend)
        if target := Path(file).resolve() if write else output:
            _to_file(chunks, reading, work, target)
        else:
            sys.stdout.flush()
            sys.stdout.buffer.writelines(chunks)
            sys.stdout.buffer.flush()
    work.report(err=not (write or output))
    return FINDINGS if work.remaining else 0


def _to_file(chunks: Any, reading: Any, work: "_Work", target: Path) -> None:
    in_place = reading.source != "-" and Path(reading.source).resolve() == target.resolve()
    first = next(chunks, b"")  # reading has begun, so it is known whether the input is gzipped
    packed = reading.gzipped if in_place else target.suffix == ".gz"
    replace_file(target, chain([first], chunks), gzipped=packed, is_needed=lambda: bool(work.done) or not in_place)


@dataclass
class _Work:
    provider: Provider
    keep_open: bool
    conversations: int = 0
    done: list[dict[str, Any]] = field(default_factory=list)
    remaining: list[dict[str, Any]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """What was repaired, for people."""
    failed: list[str] = field(default_factory=list)
    """What was not."""

    def mend(self, conversation: Conversation) -> Sequence[Message] | None:
        self.conversations += 1
        mended = repair(conversation.messages, provider=self.provider, keep_open=self.keep_open)
        place = {"index": conversation.place, "id": conversation.id, "line": conversation.line}
        if mended.repairs:
            repairs = [
                {"message": done.index, "kind": done.kind.value, "action": done.action.value, "call_id": done.call_id}
                for done in mended.repairs
            ]
            self.done.append({**place, "repairs": repairs})
            self.said += [click.style(conversation.name, bold=True), *(f"  {done}" for done in mended.repairs)]
        left = errors(check(mended.messages, provider=self.provider))
        if self.keep_open:
            left = [finding for finding in left if finding.kind is not FindingKind.DANGLING_CALL]
        if left:
            findings = list(map(str, left))
            self.remaining.append({**place, "findings": findings})
            self.failed.append(f"{conversation.name}: cannot be repaired: {'; '.join(findings)}")
        return mended.messages if mended.repairs else None

    def report(self, *, err: bool) -> None:
        repairs = sum(len(entry["repairs"]) for entry in self.done)
        if is_json():
            summary = {"conversations": self.conversations, "repaired": len(self.done), "repairs": repairs}
            report = {"repaired": self.done, "remaining": self.remaining, "summary": summary}
            click.echo(json.dumps(report, indent=2), err=err)
            return
        total = f"{len(self.done):,} of {self.conversations:,} conversations repaired, {repairs:,} repairs"
        click.echo("\n".join([*self.said, *self.failed, total]), err=True)
