"""The conversations of the files that a command is given, in any format of `minutebook.formats`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click

from minutebook.cli.exits import EXIT_FINDINGS
from minutebook.cli.options import InputFile, is_json
from minutebook.cli.progress import read_progress
from minutebook.errors import UnreadableInput
from minutebook.formats import Format, Source, SourceConversation, detect, format_named, read
from minutebook.formats.libraries.export import FORMAT as EXPORT
from minutebook.record.finding import Finding, FindingKind
from minutebook.record.message import Message, Provider
from minutebook.record.validation import check

_EARLIER_KINDS: Final = frozenset({FindingKind.ORPHAN_RESULT, FindingKind.WRONG_FIRST_ROLE})
"""The kinds of problems that messages before those of the file may solve."""
MAX_SKIPPED_LINES: Final = 20
"""Maximum number of skipped parts that are printed; the others are counted."""


@dataclass(frozen=True, slots=True)
class FileConversation:
    """One conversation of a file."""

    conversation: SourceConversation
    file: str
    index: int
    """Its index in the file."""
    format: Format

    @property
    def messages(self) -> list[Message]:
        return self.conversation.messages

    @property
    def id(self) -> str | None:
        return self.conversation.id

    @property
    def model(self) -> str | None:
        return self.conversation.model

    @property
    def line(self) -> int | None:
        """The line it starts at, if the file has one conversation per line or is an export."""
        number = self.conversation.place.removeprefix("line ")
        return int(number) if number.isdecimal() else None

    @property
    def source(self) -> dict[str, Any]:
        """Its file, format, index, id and line, as JSON data."""
        return {
            "file": self.file,
            "format": self.format.name,
            "index": self.index,
            "id": self.id,
            "line": self.line,
        }

    @property
    def name(self) -> str:
        """Its index, line and id, for output."""
        location = f"conversation {self.index}" if self.line is None else f"conversation {self.index}, line {self.line}"
        return location if self.id is None else f"{location}, id {self.id!r}"

    @property
    def usage(self) -> list[Mapping[str, Any]]:
        """The usage of each model call, as the file has it."""
        return [item.usage for item in self.conversation.items if item.usage]

    def place(self, index: int) -> str:
        """Where a message is in the file: "line 3", or its index if the file does not say."""
        items = self.conversation.items
        return (items[index].place if index < len(items) else "") or f"message {index}"

    def findings(self, option: str | None, messages: Sequence[Message] | None = None) -> list[Finding]:
        """The problems that the provider has with its messages, or with others in their place."""
        findings = check(self.messages if messages is None else messages, provider=self.provider(option))
        ignored = _EARLIER_KINDS if self.conversation.is_continuation else ()
        return [finding for finding in findings if finding.kind not in ignored]

    def provider(self, option: str | None) -> Provider:
        """The provider whose rules apply: that of `--provider`, else that of the format."""
        # Anthropic rejects every kind of finding, so its findings are those of all providers.
        return self.format.provider if option is None else "anthropic" if option == "all" else option  # type: ignore[return-value]


@dataclass
class ConversationFiles:
    """Iterates over the conversations of all files, once, and collects the parts that were not understood.

    Raises, while iterating:
        UnreadableInput: a file is damaged or in no known format. If it was found in a folder, it is skipped instead, unless
            no file of the folder can be read.
    """

    files: Sequence[InputFile]
    format: str | None = None
    """The format of all files; None: it is detected."""
    prints_during_progress: bool = True
    """Whether the command prints to stdout while it reads; there is no progress bar on the same terminal then."""
    skipped: list[dict[str, str | None]] = field(default_factory=list)
    """The parts that were not understood, as JSON data: file, place and reason."""

    def __iter__(self) -> Iterator[FileConversation]:
        return (conversation for file in self.files for conversation in self.read(file))

    def read(
        self, file: InputFile, *, read_export: Callable[[Source], None] | None = None
    ) -> Iterator[FileConversation]:
        """The conversations of one file. With `read_export`, a file of `minutebook export` is passed to it instead."""
        with read_progress(file.path, prints_during_progress=self.prints_during_progress) as advance:
            try:
                source = Source(file.path, advance=advance)
                format_ = detect(source) if self.format is None else format_named(self.format)
            except UnreadableInput as error:
                self._skip_file(file, error)
                return
            if format_ is EXPORT and read_export is not None:
                read_export(source)
                return
            try:
                for index, conversation in enumerate(read(source, format_.name)):
                    yield FileConversation(conversation, file.path, index, format_)
            except UnreadableInput as error:
                self._skip_file(file, error)
                return
            finally:
                self.skipped += [
                    {"file": source.name, "place": part.place, "reason": part.reason} for part in source.skipped
                ]

    def _skip_file(self, file: InputFile, error: UnreadableInput) -> None:
        """Record that a file of a folder was skipped.

        Raises:
            UnreadableInput: the user named the file itself, or no file of the folder can be read.
        """
        if not file.is_in_folder:
            raise error
        self.skipped.append({"file": file.path, "place": None, "reason": error.problem})
        unread_files = {part["file"] for part in self.skipped if part["place"] is None}
        if unread_files >= {other.path for other in self.files}:
            problem = f"no file of the folder can be read; {len(unread_files)} tried, the last one {error}"
            raise UnreadableInput(file.folder or file.path, problem) from None

    def title(self, conversation: FileConversation) -> str:
        """The name of a conversation, with its file if there are several."""
        return conversation.name if len(self.files) == 1 else f"{conversation.file}: {conversation.name}"

    def report_skipped(self, code: int | None = None) -> int:
        """Print the skipped parts to stderr, unless the output is JSON. Return the exit code: 6 if there are any."""
        if not is_json():
            for part in self.skipped[:MAX_SKIPPED_LINES]:
                click.echo(f"skipped {': '.join(filter(None, part.values()))}", err=True)
            if len(self.skipped) > MAX_SKIPPED_LINES:
                click.echo(f"skipped {len(self.skipped) - MAX_SKIPPED_LINES:,} more parts; --json lists all", err=True)
        return code or (EXIT_FINDINGS if self.skipped else 0)
