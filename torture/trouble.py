"""A SQLite file whose disk is full, that may not be written, or that is gone: under load, on real file systems."""

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
from torture.server import NotPossible

WRITERS = 16
MOST = 10_000
"""Whoever is not refused after so many never will be."""
NOBODY = 65534
_noise = random.Random(6)


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """A folder that everybody may use, all the way up."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o777)
        yield Path(made)


def full_disk(folder: Path, *, megabytes: int = 4) -> str:
    """Fill a file system of a few megabytes to the brim; then give it more room and go on."""
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder))
    try:
        acknowledged = asyncio.run(
            _fill(folder / "chat.db", lambda: _mount("-o", f"remount,size={8 * megabytes}m", str(folder)))
        )
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    return (
        f"StoreFull after {acknowledged:,} appends on {megabytes} MB; all of them there, and it went on with more room"
    )


async def _fill(path: Path, make_room: Callable[[], None]) -> int:
    async with open_store(f"sqlite:///{path}") as store:
        acknowledged, problems = await _write_until_refused(store)
        assert {type(problem) for problem in problems} == {StoreFull}, problems
        await _require(store, acknowledged)
        make_room()
        await store.append("after", text_entries("there is room again"))
    async with open_store(f"sqlite:///{path}") as store:
        await _require(store, {**acknowledged, "after": 1})
    return sum(acknowledged.values())


def gone(folder: Path) -> str:
    """Take the whole folder away in the middle of appends; then look at what was taken."""
    here, there = folder / "here", folder / "there"
    here.mkdir()

    async def story() -> int:
        store = open_store(f"sqlite:///{here / 'chat.db'}")
        acknowledged, problems = await _write_until_refused(store, after=200, then=lambda: here.rename(there))
        assert all(isinstance(problem, StoreUnavailable) for problem in problems), problems
        await store.close()
        async with open_store(f"sqlite:///{there / 'chat.db'}") as taken:
            await _require(taken, acknowledged)
        return sum(acknowledged.values())

    return f"StoreUnavailable after {asyncio.run(story()):,} appends; all of them in the file that was taken away"


def read_only(folder: Path) -> str:
    """Have somebody write who may only read."""
    path = folder / "chat.db"

    async def made() -> None:
        async with open_store(f"sqlite:///{path}") as store:
            await store.append("a", text_entries("1"))

    asyncio.run(made())
    path.chmod(0o444)
    reader = get_context("forkserver").Process(target=_read_only, args=(str(path),))
    reader.start()
    reader.join()
    assert reader.exitcode == 0, "the reader failed"
    return "StoreReadOnly for each of 3 changes; what was there can be read"


def _read_only(path: str) -> None:
    asyncio.run(_only_reads(f"{path}.other"))  # everything is imported while it can still be read
    if os.getuid() == 0:  # nothing is read-only for root
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    asyncio.run(_only_reads(path))


async def _only_reads(path: str) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        if path.endswith(".other"):
            await store.append("a", text_entries("1"))
            await store.search("1")
            return
        changes: list[Awaitable[object]] = [store.append("a", text_entries("2")), store.erase(conversation="a")]
        for attempt in (*changes, store.set_labels("a", {"x": "y"})):
            await expect_error(StoreReadOnly, attempt)
        assert len((await store.load("a")).entries) == 1
        assert (await store.list()).items


async def _write_until_refused(
    store: ConversationStore, *, after: int = 0, then: Callable[[], object] | None = None
) -> tuple[dict[str, int], list[BaseException]]:
    """What each of several writers had acknowledged when it was refused, and how; `then` is done after so many."""
    acknowledged: dict[str, int] = {}

    async def write(name: str) -> None:
        for _ in range(MOST):
            await store.append(name, text_entries(_noise.randbytes(1_500).hex()))
            acknowledged[name] = acknowledged.get(name, 0) + 1
            if then is not None and sum(acknowledged.values()) == after:
                then()

    ended = await asyncio.gather(*(write(f"c{number}") for number in range(WRITERS)), return_exceptions=True)
    return acknowledged, [one for one in ended if one is not None]


async def _require(store: ConversationStore, acknowledged: dict[str, int]) -> None:
    """Everything that was acknowledged is there, and of the rest whole messages only."""
    for name, count in acknowledged.items():
        loaded = await store.load(name)
        assert list(loaded.positions) == list(range(len(loaded.entries)))
        assert len(loaded.entries) >= count, f"{name} has {len(loaded.entries)} of {count}"


def _mount(*arguments: str) -> None:
    mount = shutil.which("mount")
    done = (
        subprocess.run([mount or "mount", *arguments], capture_output=True, text=True, check=False) if mount else None
    )
    if done is None or done.returncode:
        raise NotPossible("mounting a small file system needs root")
