"""The file a chat is kept in: one entry a line, each on the disk before the chat goes on.

A crash can leave at most the beginning of the last line. Such a torn line is left out when the file is read again, and
overwritten by the next entry; whatever stands before it is whole.
"""

import errno
import fcntl
import json
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from minutebook.cli.options import state_folder
from minutebook.errors import InvalidMessage, InvalidSetting, UnreadableInput
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message, is_system
from minutebook.wire.chat import entry_from_json, entry_to_json, entry_to_provider_message

HEAD: Final = b'{"message":{"'
"""How every line begins, so that a torn one is known from a file that is something else."""


class ChatLog:
    """An open chat file, which nobody else writes to in the meantime."""

    def __init__(self, path: Path, handle: int, *, new: bool) -> None:
        self.path = path
        self.new = new
        """Whether it was made for this chat."""
        self._handle = handle
        self.entries: list[ConversationEntry] = []
        """What it held when it was opened."""
        self.torn = 0
        """How many bytes of an unfinished line were left out."""
        self._size = 0
        """How much of the file is whole lines."""
        self._unsaved = b""
        try:
            self._lock()
            if not new:
                self._read()
        except BaseException:
            os.close(handle)
            raise

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new file, for its owner alone.

        Raises:
            InvalidSetting: there is a file of that name.
        """
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            expected = "--continue too, to go on with what is in it, or the name of a file that is not there yet"
            raise InvalidSetting("--transcript", str(path), expected) from None
        return cls(path, handle, new=True)

    @classmethod
    def resume(cls, path: Path) -> Self:
        """A file that is there, with what it holds; it is not changed before something is added.

        Raises:
            UnreadableInput: it holds something else than a chat.
            InvalidSetting: another chat has it open.
        """
        return cls(path, os.open(path, os.O_RDWR), new=False)

    def append(self, entry: ConversationEntry) -> None:
        """Put an entry on the disk. What could not be written is kept, and goes before the next entry."""
        self._unsaved += entry_to_json(entry).encode() + b"\n"
        self._save()

    @property
    def provider(self) -> str | None:
        """Who was asked last, where it held anything."""
        return self.entries[-1].provider if self.entries else None

    @property
    def model(self) -> str | None:
        """The model that was asked last."""
        return self.entries[-1].model if self.entries else None

    def messages(self) -> list[Message]:
        """The conversation it held: the newest system message first, where there was one, then all others in order."""
        said = [entry_to_provider_message(entry) for entry in self.entries]
        return [*[message for message in said if is_system(message)][-1:], *(m for m in said if not is_system(m))]

    def close(self) -> None:
        """Write what could not be written before; a new file with nothing in it goes again."""
        try:
            if self._unsaved.strip():
                self._save()
        finally:
            if self.new and not self._size:
                with suppress(OSError):
                    self.path.unlink()
            os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            expected = "another: a chat that is still open writes to this one"
            raise InvalidSetting("--transcript", str(self.path), expected) from None

    def _read(self) -> None:
        with open(self._handle, "rb", closefd=False) as stream:
            lines = stream.readlines()
        for number, line in enumerate(lines, 1):
            if number == len(lines) and _is_torn(line):
                self.torn = len(line)
                break
            try:
                self.entries.append(entry_from_json(line.decode()))
            except (InvalidMessage, UnicodeDecodeError) as error:
                problem = f"is not a chat of `minutebook chat`, which has an entry a line ({error})"
                raise UnreadableInput(str(self.path), problem, number) from None
            self._size += len(line)
            if not line.endswith(b"\n"):
                self._unsaved = b"\n"

    def _save(self) -> None:
        if self.torn:
            os.ftruncate(self._handle, self._size)
        # Half of a line that did not get through is overwritten: what is unsaved only grows.
        done = 0
        while done < len(self._unsaved):
            done += os.pwrite(self._handle, self._unsaved[done:], self._size + done)
        os.fsync(self._handle)
        if not self._size:
            _sync_folder(self.path.parent)
        self._size += done
        self._unsaved, self.torn = b"", 0


def chats_folder() -> Path:
    """Where chats are kept unless they are given a place: in the folder for state of the XDG rules."""
    return state_folder() / "chats"


def new_chat() -> Path:
    """A name for a new chat; its folder is there."""
    folder = chats_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{uuid4().hex[:6]}.jsonl"


def newest_chat() -> Path:
    """The chat in which something was said last.

    Raises:
        FileNotFoundError: there is none.
    """
    found: list[tuple[Any, ...]] = []
    for path in chats_folder().glob("*.jsonl"):
        facts = path.stat()
        if facts.st_size:
            found.append((facts.st_mtime_ns, path.name, path))
    if not found:
        problem = "there is no chat to go on with; leave --continue out to begin one"
        raise FileNotFoundError(errno.ENOENT, problem, str(chats_folder()))
    newest: Path = max(found)[-1]
    return newest


def _is_torn(line: bytes) -> bool:
    """Whether a line is only the beginning of an entry. A disk that lost power may have filled it up with zeros."""
    start = line.rstrip(b"\0")
    if line.endswith(b"\n") or not (start.startswith(HEAD) or HEAD.startswith(start)):
        return False
    try:
        json.loads(line)
    except ValueError:
        return True
    return False


def _sync_folder(folder: Path) -> None:
    """Have the disk know that the file is there."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
