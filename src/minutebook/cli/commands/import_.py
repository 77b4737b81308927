"""`minutebook import`: conversations from a file into the database.

Whatever the file is, it becomes the lines that an export has, one conversation after the other, and the store's own
import does the rest: in steps, each of which may be repeated, so that neither a large file nor a second try is a
problem. What is wrong with one conversation does not stop the others.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import click

from minutebook.cli.database import Database
from minutebook.cli.exits import FAILED, FINDINGS, Command
from minutebook.cli.files import Reading
from minutebook.cli.options import emit, file_argument, json_option, on_database
from minutebook.cli.progress import progress
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

MOST_TOLD: Final = 5
"""So many problems of a conversation are listed; the others are counted."""
_HEADER: Final = re.compile(rb'\s*\{\s*"conversation"\s*:')
_ENTRY: Final = re.compile(rb'\{"message":\{')
"""How every line of the files begins that `minutebook chat` wrote before chats were kept in the database."""
_REFUSALS: Final = (ConversationErased, IdempotencyConflict, InvalidSetting, VersionConflict)
_Numbered = Iterator[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Told:
    """A conversation that there is something to say about."""

    id: str
    problems: list[str]


@dataclass
class Outcome:
    """What became of the conversations of a file."""

    conversations: int = 0
    messages: int = 0
    existing_conversations: int = 0
    """In the file, and in the database already."""
    existing_messages: int = 0
    broken: list[Told] = field(default_factory=list)
    """Kept all the same."""
    refused: list[Told] = field(default_factory=list)
    """Not imported."""


@dataclass
class _Import:
    """The import of one input."""

    database: Database
    reading: Reading
    recipient: str | None
    outcome: Outcome = field(default_factory=Outcome)

    def run(self) -> Outcome:
        """Import all conversations.

        Raises:
            UnreadableInput: it holds something else from some line on; what stood before that line is imported.
        """
        lines = self.reading.lines()
        front, first = [], b""
        for numbered in lines:
            front.append(numbered)
            if first := numbered[1].strip():
                break
        every = chain(front, lines)
        if _HEADER.match(first):
            self._exported(every)
        elif _ENTRY.match(first):
            self._chat(every)
        elif _is_message(first):
            self._messages(every)
        else:
            self._conversations(every)
        return self.outcome

    @property
    def _stem(self) -> str:
        """What the file is called, without what says which kind of file it is."""
        name = Path(self.reading.name).name
        return name.removesuffix(".gz").rpartition(".")[0] or name

    def _exported(self, lines: _Numbered) -> None:
        """What export wrote: every header begins another conversation."""
        count = 0

        def place(numbered: tuple[int, bytes]) -> int:
            nonlocal count
            count += bool(_HEADER.match(numbered[1]))
            return count

        for _, group in groupby(lines, place):
            numbered = iter(group)
            number, head = next(numbered)
            name, head = _renamed(head, self.recipient)
            self._take_lines(name or f"line {number}", chain([head], (line for _, line in numbered)), number)

    def _chat(self, lines: _Numbered) -> None:
        """A chat of an earlier version: an entry a line, the last of which may have been cut off by a crash."""

        def entries() -> Iterator[bytes]:
            for _, line in lines:
                if line.endswith(b"\n") or _value(line) is not None:
                    yield b'{"entry":%s}' % line.rstrip()
                else:
                    self.outcome.broken.append(Told(self._stem, ["its last line was never finished, and is left out"]))

        head = _header(self._stem, self.recipient or "chat", datetime.now(UTC)).encode()
        self._take_lines(self._stem, chain([head], entries()), 0)

    def _messages(self, lines: _Numbered) -> None:
        """One conversation, a message a line: converted as it comes, for it may be longer than memory is wide."""
        telling = _Telling()
        at = 0

        def messages() -> Iterator[Message]:
            nonlocal at
            index = 0
            for at, line in lines:
                if line.strip():
                    yield telling.take(self.reading.message(line, index, at))
                    index += 1

        try:
            taken = self._take(self._stem, _lines(self._stem, self.recipient, messages(), None))
        except InvalidMessage as problem:
            raise UnreadableInput(self.reading.name, str(problem), at) from None
        if taken:
            telling.tell(self._stem, self.outcome)

    def _conversations(self, lines: _Numbered) -> None:
        for conversation in self.reading.conversations(lines):
            alone = conversation.line is None and conversation.data is self.reading.document
            name = conversation.id or (self._stem if alone else f"{self._stem}-{conversation.place}")
            telling = _Telling()
            messages = map(telling.take, conversation.messages)
            # All of it first, so that one with a message that is none leaves nothing behind.
            try:
                entries = list(_lines(name, self.recipient, messages, conversation.model))
            except InvalidMessage as problem:
                self.outcome.refused.append(Told(name, [str(problem)]))
                continue
            if self._take(name, entries):
                telling.tell(name, self.outcome)

    def _take_lines(self, name: str, lines: Iterable[bytes], start: int) -> None:
        """Import lines that an export has; the first is line `start` of the input."""
        try:
            self._take(name, (line.decode("utf-8", "surrogatepass") for line in lines))
        except UnreadableInput as problem:
            line = None if problem.line is None else start + problem.line - 1
            raise UnreadableInput(self.reading.name, problem.problem, line) from None
        except UnicodeDecodeError as problem:
            raise UnreadableInput(self.reading.name, f"not UTF-8 ({problem.reason})", start) from None

    def _take(self, name: str, lines: Iterable[str]) -> bool:
        store, outcome = self.database.store, self.outcome
        try:
            before = self.database.run(_length(store, name))
            done = self.database.run(store.import_(lines))
            added = (self.database.run(_length(store, name)) or 0) - (before or 0)
        except (VersionConflict, IdempotencyConflict):
            problem = "there is another conversation of that id; give this one an id of its own"
            outcome.refused.append(Told(name, [problem]))
            return False
        except _REFUSALS as error:
            outcome.refused.append(Told(name, [str(error)]))
            return False
        outcome.messages += added
        outcome.existing_messages += done.entries - added
        outcome.conversations += before is None
        outcome.existing_conversations += before is not None
        return True


async def _length(store: ConversationStore, name: str) -> int | None:
    """How many messages a conversation has; None if there is none."""
    try:
        return (await store.header(name)).length
    except ConversationNotFound:
        return None


def _header(name: str, recipient: str, at: datetime) -> str:
    about = {"format": FORMAT, "id": name, "recipient": recipient, "status": ConversationStatus.IDLE.value}
    return json.dumps({"conversation": {**about, "labels": {}, "created_at": at.isoformat()}})


def _lines(name: str, recipient: str | None, messages: Iterable[Message], model: str | None) -> Iterator[str]:
    """A conversation as export would write it."""
    run, at = uuid4(), datetime.now(UTC)
    yield _header(name, recipient or name, at)
    for place, message in enumerate(messages):
        entry = provider_message_to_entry(message, evaluation_id=run, sequence=place, created_at=at, model=model)
        yield f'{{"entry":{entry_to_json(entry)}}}'


class _Telling:
    """Notes what does not fit together while messages go by."""

    def __init__(self) -> None:
        self._pairing = Pairing()
        self._place = 0
        self._problems: list[str] = []
        self._count = 0

    def take(self, message: Message) -> Message:
        for finding in self._pairing.problems(self._place, message):
            if finding.kind is not FindingKind.REUSED_ID:
                self._count += 1
                if self._count <= MOST_TOLD:
                    self._problems.append(str(finding))
        self._pairing.take(self._place, message)
        self._place += 1
        return message

    def tell(self, name: str, outcome: Outcome) -> None:
        if self._count:
            more = [f"and {self._count - MOST_TOLD:,} more"] if self._count > MOST_TOLD else []
            outcome.broken.append(Told(name, [*self._problems, *more]))


def _is_message(line: bytes) -> bool:
    """Whether a line is a message by itself, as `Reading` sees it."""
    value = _value(line)
    return isinstance(value, Mapping) and "role" in value and "messages" not in value


def _value(line: bytes) -> Any:
    """The JSON on a line; None if it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _renamed(head: bytes, recipient: str | None) -> tuple[str | None, bytes]:
    """The id in a header, and the header with another recipient where one is given. A bad one is the import's to refuse."""
    try:
        header = json.loads(head)["conversation"]
        name = str(header["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, head
    if recipient is None:
        return name, head
    return name, json.dumps({"conversation": {**header, "recipient": recipient}}).encode()


@click.command("import", cls=Command, short_help="Keep the conversations of a file.")
@file_argument
@click.option(
    "--recipient",
    metavar="R",
    help="Whom the conversations are with; by default who the export says, else the id of each. Example: --recipient alice",
)
@on_database(make=True)
@json_option("Print one JSON document: how many came, which are broken, which were refused. Example: --json")
def command(database: Database, file: str, recipient: str | None) -> int:
    """Add the conversations of FILE to the database, which is made if there is none.

    FILE is what export wrote, or OpenAI chat data in any form that the other commands read, or a file that the chat of
    an earlier version wrote. A conversation without an id gets one from the name of the file and its place in it.
    Messages that do not fit together are kept as they are, and said; the exit code is then 6. The same file may be
    imported again: what is there already is not added twice. A conversation whose id is taken by another one is refused,
    the others are imported, and the exit code is 1.

    Files with a conversation or a message a line may be of any size: they are not read into memory.

    Example: minutebook import log.jsonl --recipient alice
    """
    with progress(file, silent=True) as advance:
        outcome = _Import(database, Reading(file, advance), recipient).run()
    emit(asdict(outcome), lambda: _report(outcome))
    if outcome.refused:
        return FAILED
    return FINDINGS if outcome.broken else 0


def _report(outcome: Outcome) -> None:
    for told in outcome.broken:
        click.echo(f"{told.id!r} is broken, and kept as it is: {'; '.join(told.problems)}", err=True)
    for told in outcome.refused:
        click.echo(f"{told.id!r} was not imported: {'; '.join(told.problems)}", err=True)
    text = f"imported {outcome.conversations:,} conversations with {outcome.messages:,} messages"
    if outcome.existing_conversations:
        text += f"; {outcome.existing_conversations:,} with {outcome.existing_messages:,} messages already existed"
    click.echo(text, err=True)
