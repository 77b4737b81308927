"""The numbered scripts that create and change the tables of a database, and checks that they were not changed.

A database records the checksum of each script that it has run. A script that is different now is refused: the tables may
differ from those that this version expects.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import Final, NamedTuple

from minutebook.errors import StoreRejected

_SQL_COMMENT: Final = re.compile(r"[ \t]*--[^\n]*")


class Migration(NamedTuple):
    """A script of the folder `migrations`."""

    number: int
    name: str
    script: str
    """Without comments: SQLite would store them in every file."""

    @property
    def setting(self) -> tuple[str, str]:
        """The name and value of the setting that records it."""
        return f"migration {self.name}", sha256(self.script.encode()).hexdigest()


@lru_cache
def load_migrations(package: str, folder: str = "migrations") -> Sequence[Migration]:
    """The migrations of an engine, in order."""
    scripts = [file for file in files(package).joinpath(folder).iterdir() if file.name.startswith("0")]
    return sorted(
        Migration(
            int(file.name.partition("_")[0]),
            file.name.removesuffix(".sql"),
            _SQL_COMMENT.sub("", file.read_text(encoding="utf-8")),
        )
        for file in scripts
    )


def require_unchanged(store: str, migrations: Sequence[Migration], version: int, recorded: Mapping[str, str]) -> None:
    """Compare the migrations up to `version` with the recorded checksums.

    Raises:
        StoreRejected: a migration was changed after the database had run it.
    """
    for migration in migrations:
        name, checksum = migration.setting
        if migration.number <= version and recorded.get(name) != checksum:
            problem = f"has run another version of migration {migration.name}, so its tables may be different"
            advice = (
                "open it with the version of minutebook that created it, export it, and import it into a new database"
            )
            raise StoreRejected(store, f"{problem}; {advice}")
