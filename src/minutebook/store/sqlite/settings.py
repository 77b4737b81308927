"""The settings of a SQLite database that all its processes share. They are recorded when the database is created."""

from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from minutebook.store.encryption import marker
from minutebook.store.search import WORDS, require_mode


@dataclass(slots=True)
class SqliteSettings:
    """The settings that a process expects of the database it opens."""

    store: str
    search_mode: str | None = None
    """None accepts any mode."""
    key_ids: Sequence[str] = ()
    """The master keys, the current one first; empty if it must not be encrypted."""
    resumes_encryption: bool = False
    """Whether the database is being encrypted in place, so that it may be encrypted partly or not at all."""

    def check(self, db: apsw.Connection) -> None:
        """Record the settings in a new database, or compare them with those of an existing one.

        Raises:
            InvalidSetting: the database has another setting `search`, or is not encrypted.
            MissingKey: it is encrypted, and no key was given.
            WrongKey: it is encrypted with another key.
        """
        recorded = self._read(db)
        is_new = db.execute("SELECT NOT EXISTS (SELECT 1 FROM conversation)").get
        new_values = self._new_values(recorded, is_new=is_new)
        if new_values:
            with db:  # another process may have recorded others meanwhile
                statement = "INSERT INTO setting (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING"
                db.executemany(statement, list(new_values.items()))
            self._new_values(self._read(db), is_new=False)

    @staticmethod
    def _read(db: apsw.Connection) -> dict[str, str]:
        return {str(name): str(value) for name, value in db.execute("SELECT name, value FROM setting")}

    def _new_values(self, recorded: dict[str, str], *, is_new: bool) -> dict[str, str]:
        values = {}
        encryption = marker.value_to_record(
            self.store, recorded.get(marker.SETTING), self.key_ids, is_new=is_new, resumes=self.resumes_encryption
        )
        if encryption is not None:
            values[marker.SETTING] = encryption
        if self.search_mode is not None:
            if is_new and "search" not in recorded:
                values["search"] = self.search_mode
            else:
                require_mode(self.search_mode, recorded.get("search", WORDS))
        return values
