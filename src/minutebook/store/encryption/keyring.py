"""Where the data keys of an encrypted store live: in a store, each in an empty conversation of its own.

A store already knows how to keep something for a recipient, how to list it and how to erase it for good; so a data key
is the label of a conversation that belongs to the recipient, under a tenant that nobody else uses.
"""

import json
from contextlib import suppress
from hashlib import sha256
from typing import Final
from uuid import uuid4

from minutebook.errors import ConversationNotFound, StoreDamaged
from minutebook.store.base import ConversationStore
from minutebook.store.encryption.cipher import Cipher, Masters, Unreadable, new_data_key
from minutebook.store.types import ConversationHeader

WRAPPED: Final = "wrapped"
MASTER: Final = "master"
STEP: Final = 200
MOST_KNOWN: Final = 10_000


class Keyring:
    """The data keys of one tenant's recipients."""

    def __init__(self, store: ConversationStore, tenant: str, masters: Masters) -> None:
        self._store = store.for_tenant(f"data keys {sha256(tenant.encode()).hexdigest()[:32]}")
        self._tenant = tenant
        self._masters = masters
        self._known: dict[str, Cipher] = {}

    async def check(self) -> None:
        """Open one of the keys, if there are any.

        Raises:
            WrongKey: another master key wrapped it.
        """
        for header in (await self._store.list(limit=1)).items:
            self._opened(header)

    async def for_recipient(self, recipient: str) -> tuple[str, Cipher]:
        """A key for what is new, and its id: the one that the recipient has, or a new one."""
        for header in (await self._store.list(recipient=recipient, limit=1)).items:
            return header.id, self._cipher(header)
        name, data_key = uuid4().hex, new_data_key()
        await self._store.append(
            name, [], recipient=recipient, labels=self._labels(data_key, recipient, name), expected_version=0
        )
        return name, self._remembered(name, data_key)

    async def cipher(self, key_id: str) -> Cipher:
        """A key by its id.

        Raises:
            ConversationErased: it was destroyed.
        """
        known = self._known.get(key_id)
        return known or self._cipher(await self._store.header(key_id))

    async def require(self, key_id: str) -> None:
        """Raises `ConversationErased` if the key was destroyed."""
        await self._store.header(key_id)

    async def destroy(self, recipient: str) -> None:
        """Destroy every key that a recipient has or had."""
        await self._store.erase(recipient=recipient)
        self._known.clear()

    async def rotate(self, key: bytes) -> int:
        """Wrap every data key with this master key; return how many were not."""
        self._masters.use(key)
        done = 0
        while changed := await self._rewrapped():
            done += changed
        return done

    async def _rewrapped(self) -> int:
        done, cursor = 0, None
        while True:
            page = await self._store.list(cursor=cursor, limit=STEP)
            for header in page.items:
                if header.labels.get(MASTER) != self._masters.current:
                    labels = self._labels(self._opened(header), header.recipient, header.id)
                    with suppress(ConversationNotFound):  # destroyed in the meantime
                        await self._store.set_labels(header.id, labels)
                        done += 1
            cursor = page.cursor
            if cursor is None:
                return done

    def _labels(self, data_key: bytes, recipient: str, name: str) -> dict[str, str]:
        wrapped = self._masters.wrap(data_key, self._whose(recipient, name))
        return {WRAPPED: wrapped, MASTER: self._masters.current}

    def _cipher(self, header: ConversationHeader) -> Cipher:
        return self._known.get(header.id) or self._remembered(header.id, self._opened(header))

    def _opened(self, header: ConversationHeader) -> bytes:
        wrapped, master = header.labels.get(WRAPPED, ""), header.labels.get(MASTER, "")
        try:
            return self._masters.unwrap(wrapped, master, self._whose(header.recipient, header.id))
        except Unreadable as problem:
            raise StoreDamaged("encrypted store", f"data key {header.id} was changed") from problem

    def _remembered(self, name: str, data_key: bytes) -> Cipher:
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        return self._known.setdefault(name, Cipher(data_key))

    def _whose(self, recipient: str, name: str) -> bytes:
        return json.dumps(["data key", self._tenant, recipient, name]).encode()
