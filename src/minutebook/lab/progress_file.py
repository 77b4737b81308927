"""A file with the outcomes of finished sessions, so that an interrupted run can continue."""

import json
import os
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from minutebook import __version__
from minutebook.errors import UnreadableInput
from minutebook.lab.outcome import SessionOutcome
from minutebook.lab.sessions import RecordedSession


class ProgressFile:
    """Outcomes by session. A line is used again only for the same session, policies, budget, prices and version.

    Without a path, nothing is stored.

    Raises:
        UnreadableInput: the file exists and has other contents.
    """

    def __init__(self, path: str | os.PathLike[str] | None, settings: Any) -> None:
        self._path = None if path is None else Path(path)
        self._settings = repr((__version__, settings))
        self._outcomes: dict[str, dict[str, SessionOutcome]] = {}
        if self._path is not None and self._path.exists():
            for number, line in enumerate(self._path.read_bytes().splitlines(keepends=True), 1):
                if line.endswith(b"\n"):  # the last line may be incomplete
                    self._read(line, number)
        self._file = None if self._path is None else self._path.open("a", encoding="utf-8")

    def _read(self, line: bytes, number: int) -> None:
        try:
            row = json.loads(line)
            outcomes = {name: SessionOutcome.from_json(value) for name, value in row["outcomes"].items()}
            self._outcomes[row["key"]] = outcomes
        except (ValueError, KeyError, TypeError, AttributeError):
            problem = "is not a file that `minutebook lab` wrote; name another file with --resume"
            raise UnreadableInput(str(self._path), problem, number) from None

    def get(self, session: RecordedSession) -> dict[str, SessionOutcome] | None:
        return self._outcomes.get(self._key(session)) if self._outcomes else None

    def add(self, session: RecordedSession, outcomes: dict[str, SessionOutcome]) -> dict[str, SessionOutcome]:
        """Store the outcomes of a session, and return them."""
        if self._file is not None:
            values = {name: outcome.to_json() for name, outcome in outcomes.items()}
            self._file.write(json.dumps({"key": self._key(session), "outcomes": values}) + "\n")
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
