"""Recorded sessions, prepared for replay: where the model was called, and what each answer used from the record."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from minutebook.errors import UnreadableInput
from minutebook.formats.registry import read
from minutebook.formats.source import CONVERSATION_EXTENSIONS, Source
from minutebook.history.names import full_text
from minutebook.lab.databases import StoredConversations, is_database, open_conversations
from minutebook.lab.prompt_cache import Billing, Charge
from minutebook.lab.uses import (
    Goal,
    TextIndex,
    Use,
    constraints_of,
    decisions_of,
    lines_of,
    names_of,
    other_names_of,
    uses,
)
from minutebook.record.message import Message, call_ids, is_result, is_user, result_id, role_of
from minutebook.store.url import open_store
from minutebook.tokens import TokenCounter, counter_for
from minutebook.tokens.models import ModelTable
from minutebook.wire.chat import json_bytes


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of the model in a recording."""

    index: int
    """The index of the answer. The messages before it are the record at that time."""
    names: Sequence[Use]
    other_names: Sequence[Use]
    lines: Sequence[Use]


@dataclass(frozen=True, slots=True)
class LaterUse:
    """A later answer that uses a message."""

    call: int
    """The index of the answer."""
    names: Sequence[str]
    lines: Sequence[str]


@dataclass
class RecordedSession:
    """One recorded conversation."""

    id: str
    messages: Sequence[Message]
    counter: TokenCounter
    model: str | None = None
    """The model that answered, if the recording says so. Its prices are the default."""
    times: Sequence[datetime | None] = ()
    """When each message was recorded; empty if unknown. A provider's cache forgets a prefix after some time."""
    models: ModelTable = field(default_factory=dict, repr=False, compare=False)
    """Your own table of models."""
    charges: dict[Billing, list[Charge]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What the full history costs at each call, as far as it was computed."""

    @cached_property
    def tokens(self) -> list[int]:
        return [self.counter.message(message) for message in self.messages]

    @cached_property
    def texts(self) -> list[str]:
        return [full_text(message) for message in self.messages]

    @cached_property
    def calls(self) -> list[RecordedCall]:
        """The calls of the model, each with what its answer uses."""
        indexes, index = list(call_indexes(self.messages)), TextIndex(self.texts)
        answers = {at: self.texts[at] for at in indexes}
        names, other_names, lines = (
            uses(index, {at: find(text) for at, text in answers.items()})
            for find in (names_of, other_names_of, lines_of)
        )
        return [RecordedCall(at, names[at], other_names[at], lines[at]) for at in indexes]

    @cached_property
    def constraints(self) -> list[Goal]:
        return constraints_of(self.messages, self.texts)

    @cached_property
    def decisions(self) -> list[Goal]:
        return decisions_of(self.messages, self.texts)

    @cached_property
    def digest(self) -> str:
        """Identifies the messages and their counter."""
        content = json_bytes([*self.messages, type(self.counter).__name__, self.model])
        return sha256(content + str(self.times).encode()).hexdigest()

    def seconds(self, call: int) -> float | None:
        """The time of the request that the message at this index answers; None if it is unknown."""
        times = [time for time in self.times[max(0, call - 1) : call + 1] if time is not None]
        return times[0].timestamp() if times else None

    def later_uses(self) -> dict[int, list[LaterUse]]:
        """For each message that a later answer uses: which answers, and the names and lines that they take from it.

        A name or line counts for the newest message that has it.
        """
        found: dict[int, list[LaterUse]] = {}
        for call in self.calls:
            by_source: dict[int, tuple[list[str], list[str]]] = {}
            for kind, kind_uses in enumerate((call.names, call.lines)):
                for use in kind_uses:
                    by_source.setdefault(use.sources[-1], ([], []))[kind].append(use.text)
            for source, (names, lines) in by_source.items():
                found.setdefault(source, []).append(LaterUse(call.index, names, lines))
        return found


def load_sessions(
    paths: str | Path | Iterable[str | Path],
    *,
    min_messages: int = 0,
    model: str | None = None,
    models: ModelTable | None = None,
    format: str | None = None,  # noqa: A002 - as `formats.read` calls it
    tenant: str = "default",
    encryption_key: bytes | None = None,
    skipped: list[UnreadableInput] | None = None,
    advance: Callable[[int], None] | None = None,
) -> Iterator[RecordedSession]:
    """The sessions of a file, a folder or a minutebook database (a SQLite file or a URL), or of several, one at a time.

    Files are in any format that `minutebook formats` lists; `format` names theirs if it is not detected. `model` replaces
    the model that a recording names; `models` is your own table of models. If `skipped` is given, a file in a folder that
    cannot be read is left out. The list gets its error, and an error for each part of a file that was not understood, such
    as a broken line. `advance` is called with the number of bytes read. `tenant` and `encryption_key` are those of
    databases.

    Raises, while iterating:
        UnreadableInput: a file is in no known format.
    """
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        for file in input_files(path):
            if is_database(file):
                store = open_store(file, tenant=tenant, encryption_key=encryption_key)
                with open_conversations(store) as stored:
                    ids = (header.id for header in stored.headers() if header.length >= min_messages)
                    yield from (stored_session(stored, conversation, model, models) for conversation in ids)
                continue
            try:
                source = Source(file, advance=advance)
                for conversation in read(source, format):
                    if len(conversation.items) >= min_messages:
                        times = [item.at for item in conversation.items]
                        name = conversation.id or Path(file).name
                        yield _session(name, conversation.messages, model or conversation.model, times, models)
                if skipped is not None:
                    skipped += [UnreadableInput(source.name, str(part)) for part in source.skipped]
            except UnreadableInput as error:
                if skipped is None or file == path:
                    raise
                skipped.append(error)


def input_files(path: str | Path) -> list[str | Path]:
    """The file or URL, or those files of the folder whose names end like files of conversations."""
    if "://" in str(path) or not Path(path).is_dir():
        return [path]
    return sorted(
        file for file in Path(path).rglob("*") if file.name.endswith(CONVERSATION_EXTENSIONS) and file.is_file()
    )


def stored_session(
    stored: StoredConversations, conversation: str, model: str | None = None, models: ModelTable | None = None
) -> RecordedSession:
    """A conversation of a database as a session."""
    messages, times, recorded_model = stored.messages(conversation)
    return _session(conversation, messages, model or recorded_model, times, models)


def _session(
    name: str,
    messages: Sequence[Message],
    model: str | None,
    times: Sequence[datetime | None],
    models: ModelTable | None,
) -> RecordedSession:
    return RecordedSession(name, messages, counter_for(model), model, times, models or {})


def call_indexes(messages: Sequence[Message]) -> Iterator[int]:
    """The indexes of answers to a complete request: the message before is the user's or the last result."""
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        if role_of(message) == "assistant":
            before = messages[index - 1] if index else None
            if before is not None and not open_calls and (is_user(before) or is_result(before)):
                yield index
            open_calls = set(call_ids(message))
        elif is_result(message):
            open_calls.discard(result_id(message))
        else:
            open_calls = set()
