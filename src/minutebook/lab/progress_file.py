"""A file with the outcomes of finished sessions, so that an interrupted run can continue."""

import json
import os
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from minutebook import __version__
from minutebook.errors import UnreadableInput
from minutebook.lab.outcome import SessionOutcome
from minutebook.lab.sessions import RecordedSession

_START: Final = b'{"key": "'
"""How every line begins."""
_FOREIGN: Final = "is not a file that `minutebook lab` wrote; name another file with --resume"


class ProgressFile:
    """Outcomes by session. A line is used again only for the same session, policies, budget, prices and version.

    An incomplete last line, of a run that was killed, is removed.

    Without a path, nothing is stored.

    Raises:
        UnreadableInput: the file exists and has other contents.
    """

    def __init__(self, path: str | os.PathLike[str] | None, settings: Any) -> None:
        self._path = None if path is None else Path(path)
        self._settings = repr((__version__, settings))
        self._outcomes: dict[str, dict[str, SessionOutcome]] = {}
        self._file: IO[bytes] | None = None
        if self._path is not None:
            lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
            incomplete = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
            for number, line in enumerate(lines, 1):
                self._read(line, number)
            if not incomplete.startswith(_START[: len(incomplete)]):
                raise UnreadableInput(str(self._path), _FOREIGN, len(lines) + 1)
            self._file = self._path.open("ab")
            self._file.truncate(self._file.tell() - len(incomplete))

    def _read(self, line: bytes, number: int) -> None:
        try:
            row = json.loads(line)
            outcomes = {name: SessionOutcome.from_json(value) for name, value in row["outcomes"].items()}
            self._outcomes[row["key"]] = outcomes
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UnreadableInput(str(self._path), _FOREIGN, number) from None

    def get(self, session: RecordedSession) -> dict[str, SessionOutcome] | None:
        return self._outcomes.get(self._key(session)) if self._outcomes else None

    def add(self, session: RecordedSession, outcomes: dict[str, SessionOutcome]) -> dict[str, SessionOutcome]:
        """Store the outcomes of a session, and return them."""
        if self._file is not None:
            values = {name: outcome.to_json() for name, outcome in outcomes.items()}
            self._file.write(json.dumps({"key": self._key(session), "outcomes": values}).encode() + b"\n")
            self._file.flush()
        return outcomes

    def _key(self, session: RecordedSession) -> str:
        return sha256(f"{self._settings} {session.id} {session.digest}".encode()).hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
