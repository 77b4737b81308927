"""Every store we have. What holds of all of them is written once and run over this list."""

from pathlib import Path

from minutebook.store.memory import MemoryStore
from minutebook.store.open import open_store
from tests.servers import require_postgres, shared


def memory(_folder: Path, **settings):
    return MemoryStore(**settings)


def sqlite(folder: Path, **settings):
    return open_store(f"sqlite:///{folder / 'chat.db'}", **settings)


def postgres(folder: Path, **settings):
    """A database is emptied for each new folder; whoever comes with the same folder finds what was there."""
    require_postgres()
    known = folder / "postgres.url"
    if not known.exists():
        known.write_text(shared.empty())
    return open_store(known.read_text(), **settings)


BACKENDS = {"memory": memory, "postgres": postgres, "sqlite": sqlite}
"""Name → a function that makes a new, empty store in a folder of its own."""
