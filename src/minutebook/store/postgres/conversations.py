"""What changes a conversation as a whole: purging, forking, erasing."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

from minutebook.errors import VersionConflict
from minutebook.store.codec import microseconds
from minutebook.store.postgres import entries as postgres_entries
from minutebook.store.postgres import folds as postgres_folds
from minutebook.store.postgres import headers as postgres_rows
from minutebook.store.postgres import leases as postgres_leases
from minutebook.store.postgres import load as postgres_trim
from minutebook.store.postgres import search as postgres_words
from minutebook.store.postgres.connection import Work
from minutebook.store.postgres.headers import COLUMNS, FOR_RECIPIENT, Filed, filed
from minutebook.store.rules import require_cut, require_purge, tombstone
from minutebook.store.types import Conversation, Origin, Receipt

_LOCK: Final = f"SELECT {COLUMNS} FROM minutebook.conversation WHERE tenant = %s AND"  # noqa: S608 - a constant of ours
_MARK: Final = (
    "INSERT INTO minutebook.tombstone (tenant, id, erased_at) SELECT %s, id, %s FROM unnest(%s::bytea[]) AS id"
)


async def purge(work: Work, one: Filed, before: int) -> int:
    """Delete entries that folds stand for; those that a fork reads stay for it, out of this conversation's sight."""
    header = one.conversation
    folds = await postgres_folds.standing(work, one, 0, max(0, min(before, header.length)))
    await postgres_folds.seal(work, one, require_purge(header, before, folds))
    gone = max(0, before - header.first)
    if not gone:
        return 0
    shared = [stop for _, stop in await postgres_trim.readers(work, one)]
    start = max(one.own, *shared, 0)
    if start < before:
        await postgres_entries.delete(work, [one.number], start, before)
        await postgres_words.forget(work, one, start, before)
    place = (work.tenant, one.number)
    await work.put(
        "DELETE FROM minutebook.pin WHERE tenant = %s AND conversation = %s AND position < %s", *place, before
    )
    await work.put("UPDATE minutebook.conversation SET first = %s WHERE tenant = %s AND number = %s", before, *place)
    return gone


async def fork(work: Work, one: Filed, new_id: str, at: int | None, when: datetime) -> Conversation:
    """A conversation that reads what it shares where it stands: nothing is copied but folds and pins."""
    header = one.conversation
    taken = await postgres_rows.find(work, new_id)
    if taken is not None:
        raise VersionConflict(new_id, taken.conversation.version, 0)
    cut = require_cut(header, at, splits=at is not None and await postgres_entries.splits(work, one, at))
    whole = cut == header.length
    lineage = [(number, min(stop, cut)) for number, stop in one.lineage]
    if cut > one.own:
        lineage.append((one.number, cut))
    made = Conversation(
        *(header.tenant, new_id, header.recipient, when, when, when),
        version=1,
        length=cut,
        turns=header.turns if whole else await postgres_entries.turns_before(work, one, cut),
        lead=min(header.lead, cut),
        first=header.first,
        open_calls=header.open_calls if whole else (),
        open_at=header.open_at if whole else None,
        labels=header.labels,
        origin=Origin(header.id, cut),
    )
    child = await postgres_rows.insert(work, made, origin=one.number, lineage=_stretches(lineage))
    await postgres_folds.copy(work, one, child)
    return made


async def erase(work: Work, conversation: str | None, recipient: str | None, at: datetime) -> Receipt:
    """Remove conversations, their forks and all that belongs to them; leave what refuses late writes."""
    reached = await _reached(work, conversation, recipient)
    numbers = [one.number for one in reached]
    counts = {
        "entries": sum(one.conversation.length - one.conversation.first for one in reached),
        "folds": 0,
        "pins": 0,
    }
    if reached:
        await postgres_entries.delete(work, numbers, 0, postgres_entries.EVERYTHING)
        marks = [tombstone(work.tenant, one.conversation.id) for one in reached]
        await work.put(_MARK, work.tenant, microseconds(at), marks)
        counts["folds"] = await _delete(work, "fold", "conversation", numbers)
        counts["pins"] = await _delete(work, "pin", "conversation", numbers)
        for table in ("answer", "word", "document"):
            await _delete(work, table, "conversation", numbers)
        await work.ask(postgres_leases.forget(work.tenant, [one.conversation.id for one in reached]))
        await _delete(work, "conversation", "number", numbers)
        await work.put("SELECT minutebook.mark_removed(ARRAY['minutebook.conversation'::regclass::oid])")
        if (await work.row("SELECT to_regprocedure('minutebook_jobs.forget(text[])') IS NOT NULL"))[0]:
            await work.put("SELECT minutebook_jobs.forget(%s::text[])", [one.conversation.id for one in reached])
    return Receipt(str(uuid4()), at, conversations=len(reached), **counts)


async def _reached(work: Work, conversation: str | None, recipient: str | None) -> list[Filed]:
    """What is named, and what was forked from it, and so on; once one is locked, nobody forks it any more."""
    found: dict[int, Filed] = {}
    where: str
    values: list[Any]
    where, values = ("id = %s", [conversation]) if recipient is None else (FOR_RECIPIENT, [recipient, recipient])
    while True:
        rows = await work.rows(f"{_LOCK} {where} ORDER BY number FOR UPDATE", work.tenant, *values)
        level = [one for one in map(filed, rows) if one.number not in found]
        if not level:
            return list(found.values())
        found.update((one.number, one) for one in level)
        where, values = "origin = ANY(%s::bigint[])", [[one.number for one in level]]


async def _delete(work: Work, table: str, column: str, numbers: list[int]) -> int:
    return await work.put(
        f"DELETE FROM minutebook.{table} WHERE tenant = %s AND {column} = ANY(%s::bigint[])",  # noqa: S608 - ours
        *(work.tenant, numbers),
    )


def _stretches(lineage: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The stretches that are not empty once a fork has left earlier."""
    kept: list[tuple[int, int]] = []
    for number, stop in lineage:
        if stop > (kept[-1][1] if kept else 0):
            kept.append((number, stop))
    return tuple(kept)
