"""Data that is deleted without an erasure: trimmed payloads, and documents that were deleted, replaced or have expired."""

from datetime import UTC, datetime

from minutebook.store.types import NewDocument
from minutebook.testing.contract.samples import entries_of, text_entries

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
GONE = [f"gone{number:03}zqx" for number in range(8)]
STAYS = "stays999zqx"


def messages_with_call(arguments, content):
    calls = [{"id": "c", "type": "function", "function": {"name": "read", "arguments": arguments}}]
    return [
        {"role": "user", "content": "read it"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": content},
        {"role": "assistant", "content": "done"},
    ]


async def plant(store):
    """Store every word of `GONE` in a different kind of data."""
    await store.append("a", entries_of(messages_with_call(f'{{"at": "{GONE[0]}"}}', f"{GONE[1]} {'long ' * 3_000}")))
    await store.append("b", entries_of(messages_with_call("{}", GONE[2])))
    assert len((await store.search(GONE[1])).items) == 1
    bodies = [NewDocument("reply", GONE[at], {"text": f"{GONE[at]} {'long ' * 3_000}"}) for at in (3, 4)]
    await store.append("a", text_entries("next"), documents=[*bodies, NewDocument("reply", "r", {"text": GONE[5]})])
    await store.put_document("b", NewDocument("note", GONE[6], {"text": GONE[7]}))


async def remove(store):
    """Delete all words of `GONE`, each in a different way, and store `STAYS`."""
    short = messages_with_call("{}", STAYS)
    await store.trim("a", {1: short[1], 2: short[2]})
    await store.trim("b", {2: messages_with_call("{}", "")[2]})
    for at in (3, 4):
        await store.delete_document("reply", GONE[at])
    await store.put_document("a", NewDocument("reply", "r", {"text": STAYS}, replace=True))
    await store.put_document("b", NewDocument("note", GONE[6], {}, expires_at=LONG_AGO, replace=True))
    await store.vacuum(rewrite=True)


def gone_in(data):
    return [word for word in GONE if word.encode() in data]
