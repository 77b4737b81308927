"""Import conversations of files into a store.

Every conversation is converted to the lines of an export, which the store imports in idempotent steps. So an interrupted
import can be repeated. A problem of one conversation does not stop the others.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, count, dropwhile, groupby, takewhile
from pathlib import Path
from typing import Final
from uuid import uuid4

from minutebook.cli.database import Database
from minutebook.cli.files import FileConversation
from minutebook.cli.options import InputFile
from minutebook.cli.rewrite import BOM, is_export_header
from minutebook.errors import (
    ConversationErased,
    ConversationNotFound,
    InvalidMessage,
    InvalidSetting,
    MinutebookError,
    UnreadableInput,
    VersionConflict,
)
from minutebook.formats import Source, SourceConversation
from minutebook.formats.libraries.database import FORMAT as OWN_DATABASE
from minutebook.formats.libraries.database import USAGE_KIND
from minutebook.formats.requests.chat import FORMAT as CHAT
from minutebook.record.entry import ConversationEntry
from minutebook.record.finding import errors
from minutebook.record.fold import Fold, record_with_folds
from minutebook.record.message import is_user, plain_copy
from minutebook.record.transcript import Transcript
from minutebook.store.base import ConversationStore
from minutebook.store.codec import fold_to_json
from minutebook.store.transfer import FORMAT
from minutebook.store.types import ConversationHeader, ConversationStatus, NewDocument
from minutebook.wire.chat import entry_to_json, entry_to_provider_message, provider_message_to_entry

MAX_PROBLEMS: Final = 5
"""Maximum number of problems that are listed per conversation; the others are counted."""
MAX_TITLE: Final = 200
"""Maximum number of characters of the label with the title."""
SOURCE_LABEL: Final = "source"
"""The label with the name of the format that a conversation was imported from."""
_OWN_FORMATS: Final = (CHAT, OWN_DATABASE)
"""Formats whose conversations keep their ids and get no label."""
_ID_TAKEN: Final = "the id is taken by another conversation; give this one its own id"
_BRANCH_MARK: Final = "~"
"""Separates an id from the number of a branch, which has other messages than the stored conversation of the id."""
_REFUSAL_ERRORS: Final = (ConversationErased, InvalidSetting)
"""Errors that refuse one conversation, besides conflicts of its id. The other conversations are imported."""
NumberedLines = Iterator[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class ConversationProblems:
    """The problems of a conversation, with its file and id."""

    file: str
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
    broken: list[ConversationProblems] = field(default_factory=list)
    """Imported with problems."""
    branched: list[ConversationProblems] = field(default_factory=list)
    """Imported under another id, because the stored conversation of their id has other messages."""
    refused: list[ConversationProblems] = field(default_factory=list)
    """Not imported."""


@dataclass
class Importer:
    """Imports the conversations of files."""

    database: Database
    recipient: str | None
    result: ImportResult
    _names: dict[tuple[str, str], str] = field(default_factory=dict)
    """The file and the id in it → the id of the stored conversation."""

    def import_export(self, source: Source) -> None:
        """Import a file that export wrote, or a chat file of an earlier version.

        Raises:
            UnreadableInput: a line cannot be read; the conversations before it are imported.
        """
        headers = 0

        def conversation_number(numbered_line: tuple[int, bytes]) -> int:
            nonlocal headers
            headers += is_export_header(numbered_line[1])
            return headers

        all_lines = ((number, line.removeprefix(BOM)) for number, line in source.raw_lines())
        lines = dropwhile(lambda numbered_line: not numbered_line[1].strip(), all_lines)
        for header_count, group in groupby(lines, conversation_number):
            numbered_lines = iter(group)
            if not header_count:
                self._import_chat(source, numbered_lines)
                continue
            number, header = next(numbered_lines)
            name, header = _with_recipient(header, self.recipient)
            entries = (line for _, line in numbered_lines)
            self._import_bytes(source, name or f"line {number}", chain([header], entries), number)

    def _import_chat(self, source: Source, lines: NumberedLines) -> None:
        """Import a chat of an earlier version: an entry per line. After a crash the last line may be incomplete."""
        name = _stem(source.name)

        def entries() -> Iterator[bytes]:
            for _, line in lines:
                if not line.strip():
                    continue
                if line.endswith(b"\n") or _is_json(line):
                    yield b'{"entry":%s}' % line.rstrip()
                else:
                    self.result.broken.append(
                        ConversationProblems(source.name, name, ["the last line is incomplete and was skipped"])
                    )

        header = _header(name, self.recipient or "chat", {}, datetime.now(UTC)).encode()
        self._import_bytes(source, name, chain([header], entries()), 0)

    def _import_bytes(self, source: Source, name: str, lines: Iterable[bytes], start: int) -> None:
        """Import the lines of an export. The first one is line `start` of the input."""
        try:
            self._import_lines(source.name, name, (line.decode("utf-8", "surrogatepass") for line in lines))
        except UnreadableInput as problem:
            line = None if problem.line is None else start + problem.line - 1
            raise UnreadableInput(source.name, problem.problem, line) from None
        except UnicodeDecodeError as problem:
            raise UnreadableInput(source.name, f"not UTF-8 ({problem.reason})", start) from None

    def import_conversation(self, conversation: FileConversation) -> None:
        """Import a conversation of any other format. A problem is noted in the result."""
        source, file = conversation.conversation, InputFile(conversation.file).name
        name, *other_names = _possible_names(conversation)
        try:
            # All messages are converted first, so that nothing is stored if one of them is invalid.
            problems, entries = _problems(conversation), _entries(conversation)
        except InvalidMessage as problem:
            self.result.refused.append(ConversationProblems(file, name, [str(problem)]))
            return
        folds, fold_problems = _valid_folds(source)
        lines = [
            *(f'{{"entry":{entry_to_json(entry)}}}' for entry in entries),
            *(json.dumps({"fold": {**fold_to_json(fold), "undone": False}}) for fold in folds),
        ]
        stored_name = self._import_as([name, *other_names], conversation, entries, lines)
        if stored_name is None:
            return
        self._names[file, name] = stored_name
        if usage := _usage_document(conversation, stored_name):
            self.database.run(self.database.store.put_document(stored_name, usage))
        if problems or fold_problems:
            self.result.broken.append(ConversationProblems(file, stored_name, [*problems, *fold_problems]))

    def _import_as(
        self,
        names: Sequence[str],
        conversation: FileConversation,
        entries: Sequence[ConversationEntry],
        lines: Sequence[str],
    ) -> str | None:
        """Import under the first of the names that no other conversation has. Return its id, None if it was refused."""
        source, file = conversation.conversation, InputFile(conversation.file).name
        labels, created_at = _labels(conversation), source.created_at or datetime.now(UTC)
        name = names[0]

        def is_stored(name: str, parents: Sequence[str]) -> bool:
            """Store the conversation as a branch of the parent with which it shares most; False if the id is taken."""
            is_forked = self.database.run(_fork(self.database.store, parents, name, entries))
            header = _header(name, self.recipient or name, labels, created_at)
            with suppress(VersionConflict):
                self._store_lines(name, chain([header], lines), is_forked=is_forked)
                return True
            return False

        try:
            parent = source.branch_of and self._names.get((file, source.branch_of), source.branch_of)
            if parent and source.branch_of:
                own_name = self._free_name(source.branch_of, conversation.format.name)
                former_names = [*self._family(parent), *self._family(own_name), *source.former_ids]
                if (name := self._find_continued(former_names, entries)) and is_stored(name, []):
                    return name
            for possible_name in names:
                name = self._free_name(possible_name, conversation.format.name)
                if is_stored(name, [parent] if parent else []):
                    return name
            if (former_name := self._find_continued(source.former_ids, entries)) and is_stored(former_name, []):
                return former_name
            shared_count = self.database.run(_count_shared(self.database.store, name, entries))
            if conversation.format in _OWN_FORMATS and not any(map(is_user, source.messages[:shared_count])):
                self.result.refused.append(ConversationProblems(file, name, [_ID_TAKEN]))
                return None
            family = [name]
            while not is_stored(family[-1], family[:-1]):
                family.append(_branch_name(name, len(family) + 1))
        except _REFUSAL_ERRORS as error:
            self.result.refused.append(ConversationProblems(file, name, [str(error)]))
            return None
        problem = f"the stored {name!r} has other messages from message {shared_count} on and was not changed"
        self.result.branched.append(ConversationProblems(file, family[-1], [problem]))
        return family[-1]

    def _family(self, name: str) -> Iterator[str]:
        """The ids of the stored conversations with the id, and of the branches that earlier imports added to it."""
        names = (_branch_name(name.partition(_BRANCH_MARK)[0], number) for number in count(1))
        return takewhile(lambda branch: self.database.run(_length(self.database.store, branch)) is not None, names)

    def _find_continued(self, names: Iterable[str], entries: Sequence[ConversationEntry]) -> str:
        """The first of the stored conversations whose messages all begin this one; empty if there is none.

        When a session is rewound, its file has the messages that were imported before as a branch. When a branch becomes
        the current path, its messages were imported under the id of the branch.
        """
        store, run, used_names = self.database.store, self.database.run, set(self._names.values())
        for name in names:
            length = None if name in used_names else run(_length(store, name))
            if length and length == run(_count_shared(store, name, entries)):
                return name
        return ""

    def _free_name(self, name: str, format_name: str) -> str:
        """The id to import under: the id in the file, prefixed with the format if a conversation of another format has it."""
        if format_name in {own.name for own in _OWN_FORMATS}:
            return name
        header = self.database.run(_find_header(self.database.store, name))
        is_taken = header is not None and header.labels.get(SOURCE_LABEL) != format_name
        return f"{format_name}-{name}" if is_taken else name

    def _import_lines(self, file: str, name: str, lines: Iterable[str]) -> None:
        """Import the lines of an export into the store. A refusal is noted in the result."""
        try:
            self._store_lines(name, lines)
        except VersionConflict:
            self.result.refused.append(ConversationProblems(file, name, [_ID_TAKEN]))
        except _REFUSAL_ERRORS as error:
            self.result.refused.append(ConversationProblems(file, name, [str(error)]))

    def _store_lines(self, name: str, lines: Iterable[str], *, is_forked: bool = False) -> None:
        """Import the lines of an export into the store, and count them.

        `is_forked`: this import has created the conversation as a fork.

        Raises:
            VersionConflict: another conversation has the id.
            ConversationErased, InvalidSetting: from the store.
        """
        store, result = self.database.store, self.result
        length_before = None if is_forked else self.database.run(_length(store, name))
        imported = self.database.run(store.import_(lines))
        added = (self.database.run(_length(store, name)) or 0) - (length_before or 0)
        result.messages += added
        result.existing_messages += imported.entries - added
        result.conversations += length_before is None
        result.existing_conversations += length_before is not None


def _possible_names(conversation: FileConversation) -> list[str]:
    """The ids to import a conversation under, in this order. Only if the file has no id of it there are several.

    They depend on the file's path alone, so that importing the file again finds the conversation.
    """
    source, file = conversation.conversation, InputFile(conversation.file).name
    stem = _stem(file)
    name = source.id or (stem if source.place in {"", "the document"} else f"{stem}-{conversation.index}")
    if source.id is not None and not source.is_id_derived:
        return [name]
    path = Path(file).absolute()
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    return [name, f"{path.parent.name}-{name}", f"{path.parent.name}-{name}-{digest}"]


async def _find_header(store: ConversationStore, name: str) -> ConversationHeader | None:
    try:
        return await store.header(name)
    except ConversationErased:
        raise
    except ConversationNotFound:
        return None


async def _length(store: ConversationStore, name: str) -> int | None:
    """The length of a conversation; None if it does not exist."""
    header = await _find_header(store, name)
    return None if header is None else header.length


async def _fork(
    store: ConversationStore, parents: Sequence[str], name: str, entries: Sequence[ConversationEntry]
) -> bool:
    """Create a branch with the messages that it shares with one of the parents, unless it exists.

    Return False if it was not created.
    """
    if await _length(store, name) is not None:
        return False
    counts = {parent: await _count_shared(store, parent, entries) for parent in parents}
    parent = max(counts, key=lambda parent: counts[parent], default="")
    for position in range(counts.get(parent, 0), 0, -1):
        with suppress(InvalidSetting):  # this position is within an exchange
            await store.fork(parent, name, at=position)
            return True
    return False


async def _count_shared(store: ConversationStore, name: str, entries: Sequence[ConversationEntry]) -> int:
    """The number of messages at the start that a stored conversation and the entries have in common."""
    if await _length(store, name) is None:
        return 0
    stored = (await store.load(name, since=0)).messages
    pairs = zip(stored, map(entry_to_provider_message, entries), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _branch_name(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{_BRANCH_MARK}{number}"


def _stem(name: str) -> str:
    """The name of a file without `.gz` and its extension."""
    name = Path(name).name
    return name.removesuffix(".gz").rpartition(".")[0] or name


def _header(name: str, recipient: str, labels: Mapping[str, str], created_at: datetime) -> str:
    header = {"format": FORMAT, "id": name, "recipient": recipient, "status": ConversationStatus.IDLE.value}
    return json.dumps({"conversation": {**header, "labels": dict(labels), "created_at": created_at.isoformat()}})


def _labels(conversation: FileConversation) -> dict[str, str]:
    """The labels of an imported conversation: its format and title. Our own formats have none."""
    if conversation.format in _OWN_FORMATS:
        return {}
    title = (conversation.conversation.title or "")[:MAX_TITLE]
    return {SOURCE_LABEL: conversation.format.name, **({"title": title} if title else {})}


def _entries(conversation: FileConversation) -> list[ConversationEntry]:
    """The entries with their original times and models."""
    source = conversation.conversation
    evaluation_id, created_at = uuid4(), source.created_at or datetime.now(UTC)
    provider = None if conversation.format in _OWN_FORMATS else conversation.format.provider
    entries = []
    for index, item in enumerate(source.items):
        created_at = item.at or created_at
        entries.append(
            provider_message_to_entry(
                item.message,
                evaluation_id=evaluation_id,
                sequence=index,
                created_at=created_at,
                provider=provider,
                model=item.model or source.model,
            )
        )
    return entries


def _valid_folds(source: SourceConversation) -> tuple[Sequence[Fold], list[str]]:
    """The compactions, if they can be stored, and the problem if they cannot."""
    try:
        record_with_folds(Transcript.of(source.messages), source.folds)
    except MinutebookError as error:
        return (), [f"its compactions were not imported: {error}"]
    return source.folds, []


def _usage_document(conversation: FileConversation, name: str) -> NewDocument | None:
    """The usage that the file has for each call, by the position of the answer."""
    calls = [
        {"position": position, "model": item.model, "usage": plain_copy(item.usage)}
        for position, item in enumerate(conversation.conversation.items)
        if item.usage
    ]
    return NewDocument(USAGE_KIND, name, {"calls": calls}, replace=True) if calls else None


def _problems(conversation: FileConversation) -> list[str]:
    """The first problems for which the provider of the format rejects the conversation, and the number of the others.

    Raises:
        InvalidMessage: it has an item that is not a message.
    """
    findings = errors(conversation.findings(None))
    more = [f"and {len(findings) - MAX_PROBLEMS:,} more"] if len(findings) > MAX_PROBLEMS else []
    return [*map(str, findings[:MAX_PROBLEMS]), *more]


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


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
