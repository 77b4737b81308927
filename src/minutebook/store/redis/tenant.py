"""Finding a tenant's conversations, and taking an id for a new one.

An id is taken in the list of all before the conversation is made in its recipient's keys; these may be on two servers,
so a process may die in between. Therefore a claim has a nonce: whoever finds one that nothing came of makes the nonce
void where the conversation would be, and takes the id anew. A claim that is void makes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from minutebook.errors import ConversationErased, ConversationNotFound, StoreDamaged
from minutebook.store.redis.connection import Engine, Value
from minutebook.store.redis.keys import Claim, Keys, rank_of
from minutebook.store.redis.rows import Filed, filed
from minutebook.store.rules import tombstone

STALE_MILLISECONDS: Final = 60_000
"""When a claim is so old that whoever made it will not come back to it."""
VOID_MILLISECONDS: Final = 24 * 3600 * 1000
"""How long what is void or erased is remembered beside the conversations: longer than anybody is on the way."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """One tenant's conversations on one server. All of it runs on the engine's loop."""

    engine: Engine
    keys: Keys

    @property
    def tenant(self) -> str:
        return self.keys.tenant

    @property
    def lifetime(self) -> Value:
        """How long conversations live after an append, as the scripts take it."""
        return "" if self.engine.address.lifetime is None else self.engine.address.lifetime

    def mark(self, conversation: str) -> bytes:
        return tombstone(self.tenant, conversation)

    def filed(self, conversation: str, flat: Sequence[bytes]) -> Filed:
        return filed(self.tenant, conversation, flat)

    async def ask(self, script: str, conversation: str, *args: Value, more: Sequence[str] = ()) -> list[Any]:
        """Carry out a script on a conversation; `more` are keys of others that it needs.

        Raises:
            ConversationNotFound: there is none.
        """
        recipient = self.engine.places.get((self.tenant, conversation))
        if recipient is not None:
            reply = await self._ask(script, recipient, conversation, args, more)
            if reply[0] != b"none":
                return reply
            self.engine.forget(self.tenant, conversation)
        claim = await self.locate(conversation)
        if claim is None:
            raise ConversationNotFound(conversation)
        reply = await self._ask(script, claim.recipient, conversation, args, more)
        if reply[0] == b"none":
            raise ConversationNotFound(conversation)
        self.engine.remember(self.tenant, conversation, claim.recipient)
        return reply

    async def _ask(
        self, script: str, recipient: str, conversation: str, args: Sequence[Value], more: Sequence[str]
    ) -> list[Any]:
        keys = [*self.keys.conversation(recipient, conversation), *more]
        reply = await self.engine.script(script, keys, (self.mark(conversation), *args))
        if reply[0] == b"erased":
            raise ConversationErased(conversation)
        return reply

    async def find(self, conversation: str, key: Value = "") -> tuple[Filed | None, bytes]:
        """A conversation, or None, and what was answered to a key."""
        try:
            reply = await self.ask("find_document", conversation, key)
        except ConversationErased:
            raise
        except ConversationNotFound:
            return None, b""
        return self.filed(conversation, reply[1]), reply[2]

    async def found(self, conversation: str) -> Filed:
        """A conversation that must be there."""
        return self.filed(conversation, (await self.ask("find_document", conversation, ""))[1])

    async def locate(self, conversation: str) -> Claim | None:
        """Whose a conversation is, or would be if something came of the claim."""
        args = (conversation, self.mark(conversation))
        reply = await self.engine.script("find_conversation", self.keys.catalogue(), args)
        if reply[0] == b"erased":
            raise ConversationErased(conversation)
        return Claim.read(reply[1]) if reply[1] else None

    async def claim(self, conversation: str, recipient: str, created_at: int) -> Claim | None:
        """Take an id for a conversation that is to be made; None if it has been made in the meantime."""
        instead_of = ""
        while True:
            args = (conversation, self.mark(conversation), uuid4().hex, rank_of(created_at), recipient, instead_of)
            reply = await self.engine.script("claim_conversation_id", self.keys.catalogue(), args)
            if reply[0] == b"erased":
                raise ConversationErased(conversation)
            claim = Claim.read(reply[1])
            if claim.recipient == recipient and reply[2] < STALE_MILLISECONDS:
                return claim
            if not await self.void(conversation, claim):
                return None
            instead_of = claim.nonce

    async def void(self, conversation: str, claim: Claim) -> bool:
        """Make a claim worthless, unless the conversation is there."""
        recipient = claim.recipient
        keys = (
            self.keys.parts(recipient, conversation)[0],
            self.keys.void(recipient, claim.nonce),
            self.keys.order(recipient),
        )
        member = claim.rank + conversation
        return bool((await self.engine.script("remove_claim", keys, (member, VOID_MILLISECONDS)))[1])

    def keys_to_make(self, conversation: str, claim: Claim) -> list[str]:
        """The keys with which a conversation is made."""
        keys = self.keys.conversation(claim.recipient, conversation)
        return [*keys, self.keys.void(claim.recipient, claim.nonce)]

    def damaged(self, problem: str) -> StoreDamaged:
        return StoreDamaged(self.engine.address.name, problem)
