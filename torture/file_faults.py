"""Faults of a SQLite file under load, on real file systems: a full disk, a read-only file, a moved file."""

import asyncio
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from minutebook.errors import StoreFull, StoreReadOnly, StoreUnavailable
from minutebook.store.base import ConversationStore
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import expect_error, text_entries
from torture.server import Unsupported

WRITERS = 16
MAX_APPENDS = 10_000
"""Appends of one writer after which the test fails, because the fault has no effect."""
UNPRIVILEGED_USER = 65534
_noise = random.Random(6)


@contextmanager
def world_writable_folder() -> Iterator[Path]:
    """A temporary folder that every user can reach and write to."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def fill_disk(folder: Path, *, megabytes: int = 4) -> str:
    """Fill a small file system, then enlarge it and continue."""
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder))

    def enlarge() -> None:
        _mount("-o", f"remount,size={8 * megabytes}m", str(folder))

    try:
        acknowledged = asyncio.run(_fill_and_continue(folder / "chat.db", enlarge))
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    return (
        f"StoreFull after {acknowledged:,} appends on {megabytes} MB; all are stored, and appends work after enlarging"
    )


async def _fill_and_continue(path: Path, enlarge: Callable[[], None]) -> int:
    async with open_store(f"sqlite:///{path}") as store:
        acknowledged, errors = await _write_until_error(store)
        assert {type(error) for error in errors} == {StoreFull}, errors
        await _require_stored(store, acknowledged)
        enlarge()
        await store.append("after", text_entries("there is room again"))
    async with open_store(f"sqlite:///{path}") as store:
        await _require_stored(store, {**acknowledged, "after": 1})
    return sum(acknowledged.values())


def move_file(folder: Path) -> str:
    """Move the folder of the file during appends, then read the moved file."""
    before, after = folder / "before", folder / "after"
    before.mkdir()

    async def run() -> int:
        store = open_store(f"sqlite:///{before / 'chat.db'}")
        acknowledged, errors = await _write_until_error(store, fault=lambda: before.rename(after), fault_after=200)
        assert all(isinstance(error, StoreUnavailable) for error in errors), errors
        await store.close()
        async with open_store(f"sqlite:///{after / 'chat.db'}") as moved:
            await _require_stored(moved, acknowledged)
        return sum(acknowledged.values())

    return f"StoreUnavailable after {asyncio.run(run()):,} appends; all are in the moved file"


def write_to_read_only_file(folder: Path) -> str:
    """Write as a user that may only read the file."""
    path = folder / "chat.db"

    async def create() -> None:
        async with open_store(f"sqlite:///{path}") as store:
            await store.append("a", text_entries("1"))

    asyncio.run(create())
    path.chmod(0o444)
    process = get_context("forkserver").Process(target=_run_unprivileged, args=(str(path),))
    process.start()
    process.join()
    assert process.exitcode == 0, "the reader failed"
    return "StoreReadOnly for each of 3 changes; reads work"


def _run_unprivileged(path: str) -> None:
    asyncio.run(_import_everything(f"{path}.other"))
    if os.getuid() == 0:  # root may write to a read-only file
        os.setgroups([])
        os.setgid(UNPRIVILEGED_USER)
        os.setuid(UNPRIVILEGED_USER)
    asyncio.run(_require_read_only(path))


async def _import_everything(path: str) -> None:
    """Use a store once, so that all modules are imported while this process may still read them."""
    async with open_store(f"sqlite:///{path}") as store:
        await store.append("a", text_entries("1"))
        await store.search("1")


async def _require_read_only(path: str) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        changes: list[Awaitable[object]] = [store.append("a", text_entries("2")), store.erase(conversation="a")]
        for change in (*changes, store.set_labels("a", {"x": "y"})):
            await expect_error(StoreReadOnly, change)
        assert len((await store.load("a")).entries) == 1
        assert (await store.list()).items


async def _write_until_error(
    store: ConversationStore, *, fault: Callable[[], object] | None = None, fault_after: int = 0
) -> tuple[dict[str, int], list[BaseException]]:
    """Append with several writers, each until its first error; return their acknowledged appends and the errors.

    `fault` is called after `fault_after` appends.
    """
    acknowledged: dict[str, int] = {}

    async def write(name: str) -> None:
        for _ in range(MAX_APPENDS):
            await store.append(name, text_entries(_noise.randbytes(1_500).hex()))
            acknowledged[name] = acknowledged.get(name, 0) + 1
            if fault is not None and sum(acknowledged.values()) == fault_after:
                fault()

    results = await asyncio.gather(*(write(f"c{number}") for number in range(WRITERS)), return_exceptions=True)
    return acknowledged, [error for error in results if error is not None]


async def _require_stored(store: ConversationStore, acknowledged: dict[str, int]) -> None:
    """Require that all acknowledged messages are stored, and that positions have no gaps."""
    for name, count in acknowledged.items():
        loaded = await store.load(name)
        assert list(loaded.positions) == list(range(len(loaded.entries)))
        assert len(loaded.entries) >= count, f"{name} has {len(loaded.entries)} of {count}"


def _mount(*arguments: str) -> None:
    mount = shutil.which("mount")
    if not mount or subprocess.run([mount, *arguments], capture_output=True, check=False).returncode:
        raise Unsupported("mounting a small file system needs root")
