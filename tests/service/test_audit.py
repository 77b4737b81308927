import asyncio
import json
import random
from dataclasses import asdict, replace

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import InvalidSetting, MemoryStore
from minutebook.service.apikey import RESERVED_TENANT
from minutebook.service.audit import Audit, AuditEntry, forgotten
from minutebook.service.caller import Caller
from tests.service.clocks import Clock
from tests.store.backends import BACKENDS, sqlite

ADMIN = Caller("acme", "0f3a9c1b2d4e")


async def noted(store, count):
    audit = Audit(store, clock=Clock().now)
    for number in range(count):
        await audit.note(ADMIN, "fork", f"conv_{number}")
    return audit


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_a_trail_says_who_did_what_and_is_whole(make, tmp_path):
    async def main():
        async with make(tmp_path) as store:
            audit = await noted(store, 3)
            return [entry async for entry in audit.entries()], await audit.verify()

    entries, verdict = asyncio.run(main())
    assert [(one.number, one.act, one.target, one.tenant, one.key_id) for one in entries] == [
        (number, "fork", f"conv_{number}", "acme", "0f3a9c1b2d4e") for number in range(3)
    ]
    assert verdict
    assert (verdict.length, verdict.last) == (3, entries[-1].sha256)


def test_an_empty_trail_is_whole():
    assert asyncio.run(Audit(MemoryStore()).verify())


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_replicas_that_write_at_once_write_one_trail(make, tmp_path):
    async def main():
        async with make(tmp_path) as store:
            replicas = [Audit(store) for _ in range(4)]
            await asyncio.gather(*(replicas[number % 4].note(ADMIN, "fork", f"conv_{number}") for number in range(20)))
            return [entry.target async for entry in Audit(store).entries()], await Audit(store).verify()

    targets, verdict = asyncio.run(main())
    assert sorted(targets) == sorted(f"conv_{number}" for number in range(20))
    assert verdict
    assert verdict.length == 20


def tampered(book, chance):
    """Change one thing about a trail, as somebody might who has the database; say what it was."""
    place = chance.randrange(len(book.entries))
    entry = book.entries[place]
    body = json.loads(entry.content)
    what = chance.choice(["field", "character", "time", "remove", "swap", "extra"])
    if what == "field":
        name = chance.choice(sorted(body))
        body[name] = f"{body[name]}x" if name != "number" else body[name] + 1
        book.entries[place] = replace(entry, content=json.dumps(body, sort_keys=True))
    elif what == "extra":
        book.entries[place] = replace(entry, content=json.dumps({**body, "more": 1}))
    elif what == "character":
        at = chance.randrange(len(entry.content))
        other = chance.choice([one for one in "abc019" if one != entry.content[at]])
        book.entries[place] = replace(entry, content=entry.content[:at] + other + entry.content[at + 1 :])
    elif what == "time":
        book.entries[place] = replace(entry, created_at=entry.created_at.replace(year=2020))
    elif what == "swap":
        other = (place + 1) % len(book.entries)
        book.entries[place], book.entries[other] = book.entries[other], entry
    else:
        kept = [one for at, one in sorted(book.entries.items()) if at != place]
        book.entries = dict(enumerate(kept))
        book.header = replace(book.header, length=len(kept))
    return what, place


def test_a_thousand_ways_of_changing_a_trail_are_found():
    async def main(number):
        chance = random.Random(number)
        store = MemoryStore()
        audit = await noted(store, 6)
        last = (await audit.verify()).last
        book = store._shelf.books[RESERVED_TENANT, "audit"]
        done = tampered(book, chance)
        return done, await audit.verify(last=last)

    for number in range(1_000):
        done, verdict = asyncio.run(main(number))
        assert not verdict, done


@pytest.mark.parametrize("place", range(5))
def test_an_entry_that_was_forged_with_a_hash_that_fits_is_found_by_the_next(place):
    async def main():
        store = MemoryStore()
        audit = await noted(store, 6)
        entries = store._shelf.books[RESERVED_TENANT, "audit"].entries
        forged = AuditEntry(**json.loads(entries[place].content) | {"target": "nothing"})
        forged = replace(forged, sha256=forged.digest())
        entries[place] = replace(entries[place], content=json.dumps(asdict(forged), sort_keys=True))
        return await audit.verify()

    verdict = asyncio.run(main())
    assert not verdict
    assert verdict.problem.startswith(f"entry {place + 1} was changed")


def test_a_trail_that_was_written_anew_is_found_by_a_hash_that_was_kept():
    async def main():
        last = (await (await noted(MemoryStore(), 5)).verify()).last
        forged = Audit(MemoryStore(), clock=Clock().now)
        for number in range(5):
            await forged.note(ADMIN, "fork", f"conv_{number + 1}")
        return await forged.verify(), await forged.verify(last=last)

    alone, checked = asyncio.run(main())
    assert alone
    assert not checked
    assert "cut off or rewritten" in checked.problem


@given(st.text(max_size=100))
def test_any_target_is_kept_and_verified(target):
    async def main():
        audit = Audit(MemoryStore())
        await audit.note(ADMIN, "fork", target)
        return await audit.verify()

    assert asyncio.run(main())


def test_the_trail_does_not_name_what_was_erased_but_can_prove_it():
    async def main():
        entry = await Audit(MemoryStore()).note(ADMIN, "erase", "alice")
        return entry.target

    target = asyncio.run(main())
    assert "alice" not in target
    assert target == forgotten("alice") != forgotten("bob")


def test_a_secret_does_not_get_into_the_trail():
    async def main():
        audit = Audit(MemoryStore())
        entry = await audit.note(ADMIN, "fork", "sk-proj-" + "a1" * 20)
        with pytest.raises(InvalidSetting):
            await audit.note(ADMIN, "fork", "x" * 513)
        return entry.target

    assert asyncio.run(main()) == "[redacted]"


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM entry WHERE place % 4294967296 = :place",
        "UPDATE entry SET created_at = created_at + 1 WHERE place % 4294967296 = :place",
        "UPDATE entry SET role = role + 1 WHERE place % 4294967296 = :place",
        "UPDATE entry SET text = x'a5a5a5' WHERE place % 4294967296 = :place",
        """UPDATE entry SET text = (SELECT text FROM entry WHERE place % 4294967296 = (:place + 1) % 5)
           WHERE place % 4294967296 = :place""",
    ],
    ids=["row gone", "time", "role", "nonsense", "text"],
)
def test_a_row_that_somebody_changed_in_the_file_is_found(tmp_path, change, place):
    async def written():
        async with sqlite(tmp_path) as store:
            await noted(store, 5)

    async def verified():
        async with sqlite(tmp_path) as store:
            return await Audit(store).verify()

    asyncio.run(written())
    database = apsw.Connection(str(tmp_path / "chat.db"))
    before = database.changes()
    database.execute(change, {"place": place})
    assert (database.changes(), before) == (1, 0)
    database.close()

    assert not asyncio.run(verified())
