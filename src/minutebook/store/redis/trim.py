"""Trimming single entries. A fork has copies of its own, so nobody else reads them."""

from collections.abc import Mapping
from hashlib import sha1

from minutebook.record.message import Message
from minutebook.store.redis.connection import Value
from minutebook.store.redis.rows import digests_of, entry_to_bytes, whole
from minutebook.store.redis.tenant import Shelf
from minutebook.store.rules import require_position, trimmed_entry


async def trim(shelf: Shelf, conversation: str, changes: Mapping[int, Message]) -> int:
    """Replace messages by smaller ones; return how many changed."""
    while True:
        filed = await shelf.found(conversation)
        places = [require_position(filed.conversation, at) for at in changes]
        spans = [end for at in places for end in (at, at + 1)]
        reply = await shelf.ask("load", conversation, filed.nonce, filed.trims, *spans)
        if reply[0] == b"moved":
            continue
        bodies = {reply[2][at]: reply[2][at + 1] for at in range(0, len(reply[2]), 2)}
        entries = whole(shelf.engine.address.name, reply[1], bodies)
        args: list[Value] = []
        count = 0
        for at, kept, entry in zip(places, reply[1], entries, strict=True):
            made = trimmed_entry(entry, changes[at], at)
            if made is None:
                continue
            count += 1
            new, large = entry_to_bytes(made[0])
            blobs = [part for digest in digests_of(new) for part in (digest, large[digest])]
            args += [at, sha1(kept, usedforsecurity=False).hexdigest(), new, len(blobs) // 2, *blobs]
        if not count:
            return 0
        if (await shelf.ask("trim", conversation, filed.nonce, count, *args))[0] == b"done":
            return count
