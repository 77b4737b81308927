"""`minutebook import`: add the conversations of a file to the database.

Every input is converted to the lines of an export, which the store imports in idempotent steps. So a large file needs
little memory, and an interrupted import can be repeated. A problem of one conversation does not stop the others.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import click

from minutebook.cli.database import Database
from minutebook.cli.exits import EXIT_FINDINGS, FAILED, Command
from minutebook.cli.files import ConversationReader
from minutebook.cli.options import database_options, emit, files_argument, json_option
from minutebook.cli.progress import read_progress
from minutebook.errors import (
    ConversationErased,
    ConversationNotFound,
    IdempotencyConflict,
    InvalidMessage,
    InvalidSetting,
    UnreadableInput,
    VersionConflict,
)
from minutebook.record.finding import FindingKind
from minutebook.record.message import Message
from minutebook.record.pairing import Pairing
from minutebook.store.base import ConversationStore
from minutebook.store.transfer import FORMAT
from minutebook.store.types import ConversationStatus
from minutebook.wire.chat import entry_to_json, provider_message_to_entry

MAX_PROBLEMS: Final = 5
"""Maximum number of problems that are listed per conversation; the others are counted."""
_HEADER: Final = re.compile(rb'\s*\{\s*"conversation"\s*:')
_ENTRY: Final = re.compile(rb'\{"message":\{')
"""Start of a line in files of earlier versions of `minutebook chat`, which did not use the database."""
_REFUSED: Final = (ConversationErased, InvalidSetting)
"""Errors of one conversation, besides conflicts of its id. The others are imported."""
NumberedLines = Iterator[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """A conversation with problems."""

    id: str
    problems: list[str]


@dataclass
class ImportResult:
    """Counts and problems of an import."""

    conversations: int = 0
    messages: int = 0
    existing_conversations: int = 0
    """Conversations of the file that the database already had."""
    existing_messages: int = 0
    broken: list[ImportProblem] = field(default_factory=list)
    """Imported with problems."""
    refused: list[ImportProblem] = field(default_factory=list)
    """Not imported."""


@dataclass
class _Importer:
    """Imports the conversations of one input."""

    database: Database
    reader: ConversationReader
    recipient: str | None
    result: ImportResult

    def run(self) -> None:
        """Import all conversations.

        Raises:
            UnreadableInput: a line cannot be read; the conversations before it are imported.
        """
        lines = self.reader.lines()
        read_ahead, first_line = [], b""
        for numbered_line in lines:
            read_ahead.append(numbered_line)
            if first_line := numbered_line[1].strip():
                break
        all_lines = chain(read_ahead, lines)
        if _HEADER.match(first_line):
            self._import_export(all_lines)
        elif _ENTRY.match(first_line):
            self._import_chat(all_lines)
        elif _is_message(first_line):
            self._import_message_lines(all_lines)
        else:
            self._import_conversations(all_lines)

    @property
    def _stem(self) -> str:
        """The name of the file without `.gz` and its extension."""
        name = Path(self.reader.name).name
        return name.removesuffix(".gz").rpartition(".")[0] or name

    def _import_export(self, lines: NumberedLines) -> None:
        """Import a file that export wrote. Every header starts a conversation."""
        headers = 0

        def conversation_number(numbered_line: tuple[int, bytes]) -> int:
            nonlocal headers
            headers += bool(_HEADER.match(numbered_line[1]))
            return headers

        for _, group in groupby(lines, conversation_number):
            numbered_lines = iter(group)
            number, header = next(numbered_lines)
            name, header = _with_recipient(header, self.recipient)
            entries = (line for _, line in numbered_lines)
            self._import_bytes(name or f"line {number}", chain([header], entries), number)

    def _import_chat(self, lines: NumberedLines) -> None:
        """Import a chat of an earlier version: an entry per line. After a crash the last line may be incomplete."""

        def entries() -> Iterator[bytes]:
            for _, line in lines:
                if line.endswith(b"\n") or _json_value(line) is not None:
                    yield b'{"entry":%s}' % line.rstrip()
                else:
                    self.result.broken.append(
                        ImportProblem(self._stem, ["the last line is incomplete and was skipped"])
                    )

        header = _header(self._stem, self.recipient or "chat", datetime.now(UTC)).encode()
        self._import_bytes(self._stem, chain([header], entries()), 0)

    def _import_message_lines(self, lines: NumberedLines) -> None:
        """Import one conversation with a message per line. It is streamed: the file may be larger than memory."""
        checker = _PairingChecker()
        number = 0

        def messages() -> Iterator[Message]:
            nonlocal number
            index = 0
            for number, line in lines:
                if line.strip():
                    yield checker.check(self.reader.message(line, index, number))
                    index += 1

        try:
            is_imported = self._import_lines(self._stem, _export_lines(self._stem, self.recipient, messages(), None))
        except InvalidMessage as problem:
            raise UnreadableInput(self.reader.name, str(problem), number) from None
        if is_imported:
            self._report_broken(self._stem, checker)

    def _import_conversations(self, lines: NumberedLines) -> None:
        for conversation in self.reader.conversations(lines):
            is_whole_file = conversation.line is None and conversation.data is self.reader.document
            name = conversation.id or (self._stem if is_whole_file else f"{self._stem}-{conversation.index}")
            checker = _PairingChecker()
            messages = map(checker.check, conversation.messages)
            # All messages are converted first, so that nothing is stored if one of them is invalid.
            try:
                export_lines = list(_export_lines(name, self.recipient, messages, conversation.model))
            except InvalidMessage as problem:
                self.result.refused.append(ImportProblem(name, [str(problem)]))
                continue
            if self._import_lines(name, export_lines):
                self._report_broken(name, checker)

    def _report_broken(self, name: str, checker: "_PairingChecker") -> None:
        if problems := checker.problems():
            self.result.broken.append(ImportProblem(name, problems))

    def _import_bytes(self, name: str, lines: Iterable[bytes], start: int) -> None:
        """Import the lines of an export. The first one is line `start` of the input."""
        try:
            self._import_lines(name, (line.decode("utf-8", "surrogatepass") for line in lines))
        except UnreadableInput as problem:
            line = None if problem.line is None else start + problem.line - 1
            raise UnreadableInput(self.reader.name, problem.problem, line) from None
        except UnicodeDecodeError as problem:
            raise UnreadableInput(self.reader.name, f"not UTF-8 ({problem.reason})", start) from None

    def _import_lines(self, name: str, lines: Iterable[str]) -> bool:
        """Import the lines of an export into the store. Return False if the conversation was refused."""
        store, result = self.database.store, self.result
        try:
            length_before = self.database.run(_length(store, name))
            imported = self.database.run(store.import_(lines))
            added = (self.database.run(_length(store, name)) or 0) - (length_before or 0)
        except (VersionConflict, IdempotencyConflict):
            problem = "the id is taken by another conversation; give this one its own id"
            result.refused.append(ImportProblem(name, [problem]))
            return False
        except _REFUSED as error:
            result.refused.append(ImportProblem(name, [str(error)]))
            return False
        result.messages += added
        result.existing_messages += imported.entries - added
        result.conversations += length_before is None
        result.existing_conversations += length_before is not None
        return True


async def _length(store: ConversationStore, name: str) -> int | None:
    """The length of a conversation; None if it does not exist."""
    try:
        return (await store.header(name)).length
    except ConversationNotFound:
        return None


def _header(name: str, recipient: str, created_at: datetime) -> str:
    header = {"format": FORMAT, "id": name, "recipient": recipient, "status": ConversationStatus.IDLE.value}
    return json.dumps({"conversation": {**header, "labels": {}, "created_at": created_at.isoformat()}})


def _export_lines(name: str, recipient: str | None, messages: Iterable[Message], model: str | None) -> Iterator[str]:
    """Convert a conversation to the lines of an export."""
    evaluation_id, now = uuid4(), datetime.now(UTC)
    yield _header(name, recipient or name, now)
    for index, message in enumerate(messages):
        entry = provider_message_to_entry(
            message, evaluation_id=evaluation_id, sequence=index, created_at=now, model=model
        )
        yield f'{{"entry":{entry_to_json(entry)}}}'


class _PairingChecker:
    """Collects the problems of a conversation, message by message."""

    def __init__(self) -> None:
        self._pairing = Pairing()
        self._index = 0
        self._problems: list[str] = []
        self._count = 0

    def check(self, message: Message) -> Message:
        """Check the next message and return it."""
        for finding in self._pairing.problems(self._index, message):
            if finding.kind is not FindingKind.REUSED_ID:
                self._count += 1
                if self._count <= MAX_PROBLEMS:
                    self._problems.append(str(finding))
        self._pairing.add(self._index, message)
        self._index += 1
        return message

    def problems(self) -> list[str]:
        """The first problems, and the number of the others."""
        more = [f"and {self._count - MAX_PROBLEMS:,} more"] if self._count > MAX_PROBLEMS else []
        return [*self._problems, *more]


def _is_message(line: bytes) -> bool:
    """Whether a line is a single message, by the same rule as in `ConversationReader`."""
    value = _json_value(line)
    return isinstance(value, Mapping) and "role" in value and "messages" not in value


def _json_value(line: bytes) -> Any:
    """The JSON value of a line; None if the line is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _with_recipient(line: bytes, recipient: str | None) -> tuple[str | None, bytes]:
    """The id in a header line, and the line with the recipient replaced. The store rejects an invalid header."""
    try:
        header = json.loads(line)["conversation"]
        name = str(header["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, line
    if recipient is None:
        return name, line
    return name, json.dumps({"conversation": {**header, "recipient": recipient}}).encode()


@click.command("import", cls=Command, short_help="Add the conversations of a file to the database.")
@files_argument
@click.option(
    "--recipient",
    metavar="R",
    help="Recipient of the conversations. Default: the one in the export, else each conversation's id. Example: --recipient alice",
)
@database_options(create=True)
@json_option("Print counts, broken and refused conversations as JSON. Example: --json")
def command(database: Database, files: Sequence[str], recipient: str | None) -> int:
    """Add the conversations of the files to the database, which is created if it does not exist.

    A FILE is an export, OpenAI chat data in any format that the other commands read, or a chat file of an earlier version.
    A conversation without an id is named after the file and its index in it. Files with one conversation or message per
    line are streamed and may be of any size. Importing a file twice adds nothing.

    Exit codes: 6 if tool calls and results do not match (they are imported unchanged) or a last line is incomplete (it is
    skipped), 1 if a conversation was refused, for example because its id is taken (the others are imported).

    Example: minutebook import log.jsonl --recipient alice
    """
    result = ImportResult()
    try:
        for file in files:
            with read_progress(file, stdout_unused=True) as advance:
                _Importer(database, ConversationReader(file, advance), recipient, result).run()
    except KeyboardInterrupt:
        _print_result(result)
        click.echo("interrupted; run the same command again to import the rest", err=True)
        raise
    emit(asdict(result), lambda: _print_result(result))
    if result.refused:
        return FAILED
    return EXIT_FINDINGS if result.broken else 0


def _print_result(result: ImportResult) -> None:
    for conversation in result.broken:
        click.echo(f"{conversation.id!r}: imported with problems: {'; '.join(conversation.problems)}", err=True)
    for conversation in result.refused:
        click.echo(f"{conversation.id!r}: not imported: {'; '.join(conversation.problems)}", err=True)
    text = f"imported {result.conversations:,} conversations with {result.messages:,} messages"
    if result.existing_conversations:
        text += f"; {result.existing_conversations:,} with {result.existing_messages:,} messages already existed"
    click.echo(text, err=True)
