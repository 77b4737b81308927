"""Lists, a page at a time."""

import asyncio
from typing import Final

from minutebook.store.backend import ListQuery
from minutebook.store.codec import cursor_of, cursor_values, microseconds
from minutebook.store.redis.keys import Claim, created_at_of, member_of
from minutebook.store.redis.tenant import Shelf
from minutebook.store.types import ConversationHeader, Page

MOST_READ: Final = 10_000
"""How many headers one page may cost. Where a status is rare, a page may therefore hold fewer than asked for."""


async def listed(shelf: Shelf, query: ListQuery) -> Page[ConversationHeader]:
    """The conversations after a cursor, newest first."""
    after = cursor_values(query.cursor, int, str)
    last = "" if after is None else member_of(*after)
    found: list[ConversationHeader] = []
    seen, step = 0, query.limit + 1
    while True:
        members = await _members(shelf, query.recipient, last, step)
        headers = await _headers(shelf, query.recipient, members)
        found += [header for header in headers if header is not None and query.status in {None, header.status}]
        if len(found) > query.limit:
            end = found[query.limit - 1]
            return Page(tuple(found[: query.limit]), cursor_of(microseconds(end.created_at), end.id))
        if len(members) < step:
            return Page(tuple(found), None)
        last, seen = members[-1], seen + len(members)
        if seen >= MOST_READ:
            return Page(tuple(found), cursor_of(created_at_of(last[:16]), last[16:]))


async def _members(shelf: Shelf, recipient: str | None, last: str, count: int) -> list[str]:
    order = shelf.keys.catalogue()[1] if recipient is None else shelf.keys.order(recipient)
    client = shelf.engine.client
    found = await shelf.engine.send(client.zrangebylex(order, f"({last}" if last else "-", "+", start=0, num=count))
    return [member.decode() for member in found]


async def _headers(shelf: Shelf, recipient: str | None, members: list[str]) -> list[ConversationHeader | None]:
    names = [member[16:] for member in members]
    recipients: list[str | None] = [recipient] * len(names)
    if recipient is None and names:
        claims = await shelf.engine.send(shelf.engine.client.hmget(shelf.keys.catalogue()[0], names))
        recipients = [Claim.read(kept).recipient if kept else None for kept in claims]
    whose = zip(names, recipients, strict=True)
    return await asyncio.gather(*(_header(shelf, name, one) for name, one in whose))


async def _header(shelf: Shelf, name: str, recipient: str | None) -> ConversationHeader | None:
    """A header, if the conversation is still there."""
    if recipient is None:
        return None
    key = shelf.keys.parts(recipient, name)[0]
    row = await shelf.engine.send(shelf.engine.client.hgetall(key))
    return shelf.filed(name, [part for pair in row.items() for part in pair]).conversation if row else None
