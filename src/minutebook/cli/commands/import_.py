"""`minutebook import`: conversations from a file into the database.

Conversations on their way from a file into a store.

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
from minutebook.cli.options import file_argument, json_option, store_options
from minutebook.errors import (
    ConversationErased,
    IdempotencyConflict,
    InvalidMessage,
    InvalidSetting,
    MinutebookError,
    UnreadableInput,
    VersionConflict,
)
from minutebook.record.finding import FindingKind
from minutebook.record.message import Message
from minutebook.record.pairing import Pairing
from minutebook.store.transfer import FORMAT
from minutebook.store.types import ConversationStatus
from minutebook.wire.chat import entry_to_json, provider_message_to_entry

MOST_TOLD: Final = 5
"""So many problems of a conversation are listed; the others are counted."""
_HEADER: Final = re.compile(rb'\s*\{\s*"conversation"\s*:')
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
    broken: list[Told] = field(default_factory=list)
    """Kept all the same."""
    refused: list[Told] = field(default_factory=list)
    """Not imported."""


def arrive(database: Database, reading: Reading, recipient: str | None) -> Outcome:
    """Import all conversations of an input.

    Raises:
        UnreadableInput: it holds something else from some line on; what stood before that line is imported.
    """
    outcome = Outcome()
    lines = reading.lines()
    front = list(_up_to_the_first(lines))
    first = front[-1][1] if front else b""
    every = chain(front, lines)
    if _HEADER.match(first):
        _exported(database, reading, recipient, every, outcome)
    elif _is_message(first):
        _messages(database, reading, recipient, every, outcome)
    else:
        _conversations(database, reading, recipient, every, outcome)
    return outcome


def _exported(database: Database, reading: Reading, recipient: str | None, lines: _Numbered, outcome: Outcome) -> None:
    """What export wrote: every header begins another conversation."""
    count = 0

    def place(numbered: tuple[int, bytes]) -> int:
        nonlocal count
        count += bool(_HEADER.match(numbered[1]))
        return count

    for _, group in groupby(lines, place):
        number, head = next(group)
        name, head = _renamed(head, recipient)
        text = (line.decode("utf-8", "surrogatepass") for line in chain([head], (line for _, line in group)))
        try:
            _take(database, name or f"line {number}", text, outcome)
        except UnreadableInput as problem:
            line = None if problem.line is None else number + problem.line - 1
            raise UnreadableInput(reading.name, problem.problem, line) from None
        except UnicodeDecodeError as problem:
            raise UnreadableInput(reading.name, f"not UTF-8 ({problem.reason})", number) from None


def _messages(database: Database, reading: Reading, recipient: str | None, lines: _Numbered, outcome: Outcome) -> None:
    """One conversation, a message a line: converted as it comes, for it may be longer than memory is wide."""
    telling = _Telling()
    name, at = _stem(reading), 0

    def messages() -> Iterator[Message]:
        nonlocal at
        index = 0
        for at, line in lines:
            if line.strip():
                yield telling.take(reading.message(line, index, at))
                index += 1

    try:
        taken = _take(database, name, _lines(name, recipient, messages(), None), outcome)
    except InvalidMessage as problem:
        raise UnreadableInput(reading.name, str(problem), at) from None
    if taken:
        telling.tell(name, outcome)


def _conversations(
    database: Database, reading: Reading, recipient: str | None, lines: _Numbered, outcome: Outcome
) -> None:
    for conversation in reading.conversations(lines):
        alone = conversation.line is None and conversation.data is reading.document
        name = conversation.id or (_stem(reading) if alone else f"{_stem(reading)}-{conversation.place}")
        telling = _Telling()
        messages = map(telling.take, conversation.messages)
        # All of it first, so that one with a message that is none leaves nothing behind.
        try:
            made = list(_lines(name, recipient, messages, conversation.model))
        except InvalidMessage as problem:
            outcome.refused.append(Told(name, [str(problem)]))
            continue
        if _take(database, name, made, outcome):
            telling.tell(name, outcome)


def _take(database: Database, name: str, lines: Iterable[str], outcome: Outcome) -> bool:
    try:
        done = database.run(database.store.import_(lines))
    except _REFUSALS as problem:
        outcome.refused.append(Told(name, [_why(problem)]))
        return False
    outcome.conversations += done.conversations
    outcome.messages += done.entries
    return True


def _why(problem: MinutebookError) -> str:
    if isinstance(problem, (VersionConflict, IdempotencyConflict)):
        return "there is another conversation of that id; give this one an id of its own"
    return str(problem)


def _lines(name: str, recipient: str | None, messages: Iterable[Message], model: str | None) -> Iterator[str]:
    """A conversation as export would write it."""
    run, at = uuid4(), datetime.now(UTC)
    yield json.dumps(
        {
            "conversation": {
                "format": FORMAT,
                "id": name,
                "recipient": recipient or name,
                "status": ConversationStatus.IDLE.value,
                "labels": {},
                "created_at": at.isoformat(),
            }
        }
    )
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


def _up_to_the_first(lines: _Numbered) -> _Numbered:
    """The lines up to the first that has something on it."""
    for numbered in lines:
        yield numbered
        if numbered[1].strip():
            return


def _is_message(line: bytes) -> bool:
    """Whether a line is a message by itself, as `Reading` sees it."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, Mapping) and "role" in value and "messages" not in value


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


def _stem(reading: Reading) -> str:
    """What a file is called, without what says which kind of file it is."""
    name = Path(reading.name).name
    return name.removesuffix(".gz").rpartition(".")[0] or name


@click.command("import", cls=Command, short_help="Keep the conversations of a file.")
@file_argument
@click.option(
    "--recipient",
    metavar="R",
    help="Whom the conversations are with; by default who the export says, else the id of each. Example: --recipient alice",
)
@store_options
@json_option("Print one JSON document: how many came, which are broken, which were refused. Example: --json")
@click.pass_context
def command(ctx: click.Context, file: str, recipient: str | None, url: str | None, tenant: str, as_json: bool) -> None:
    """Add the conversations of FILE to the database, which is made if there is none.

    FILE is what export wrote, or OpenAI chat data in any form that the other commands read. A conversation without an id
    gets one from the name of the file and its place in it. Messages that do not fit together are kept as they are, and
    said; the exit code is then 6. The same file may be imported again: what is there already is not added twice. A
    conversation whose id is taken by another one is refused, the others are imported, and the exit code is 1.

    Files with a conversation or a message a line may be of any size: they are not read into memory.

    Example: minutebook import log.jsonl --recipient alice
    """
    from minutebook.cli.database import opened_database
    from minutebook.cli.files import Reading
    from minutebook.cli.progress import progress

    with progress(file, silent=True) as advance, opened_database(url, tenant, make=True) as database:
        outcome = arrive(database, Reading(file, advance), recipient)
    if as_json:
        click.echo(json.dumps(asdict(outcome), indent=2))
    else:
        _report(outcome)
    if outcome.refused:
        ctx.exit(FAILED)
    if outcome.broken:
        ctx.exit(FINDINGS)


def _report(outcome: "Outcome") -> None:
    for told in outcome.broken:
        click.echo(f"{told.id!r} is broken, and kept as it is: {'; '.join(told.problems)}", err=True)
    for told in outcome.refused:
        click.echo(f"{told.id!r} was not imported: {'; '.join(told.problems)}", err=True)
    click.echo(f"imported {outcome.conversations:,} conversations with {outcome.messages:,} messages", err=True)
