"""A tenant's index: it finds conversations by id, and claims ids for new ones.

An id is claimed in the tenant's index before the conversation is created in the recipient's keys. In a cluster these may
be on two servers, and a process may die in between. So a claim has a nonce: a process that finds a stale claim without a
conversation voids the nonce in the recipient's keys and claims the id again. A conversation is not created with a void
claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from minutebook.errors import ConversationErased, ConversationNotFound, RecipientBlocked
from minutebook.store.redis.connection import RedisEngine, Value
from minutebook.store.redis.keys import IdClaim, TenantKeys, rank_of
from minutebook.store.redis.rows import HeaderRow, header_row, pairs_of
from minutebook.store.rules import id_hash, recipient_hash

STALE_MILLISECONDS: Final = 60_000
"""The age after which a claim without a conversation belongs to a process that has died."""
VOID_MILLISECONDS: Final = 24 * 3600 * 1000
"""How long void claims and tombstones are stored among a recipient's keys: longer than any operation can run."""


@dataclass(frozen=True, slots=True)
class TenantIndex:
    """One tenant's conversations on one server. Its methods must run on the engine's loop."""

    engine: RedisEngine
    keys: TenantKeys

    @property
    def tenant(self) -> str:
        return self.keys.tenant

    @property
    def lifetime(self) -> Value:
        """The lifetime of conversations as an argument of a script: milliseconds, or empty."""
        return "" if self.engine.address.lifetime is None else self.engine.address.lifetime

    def id_hash(self, conversation: str) -> bytes:
        return id_hash(self.tenant, conversation)

    def row(self, conversation: str, fields: Sequence[bytes] | Mapping[bytes, bytes]) -> HeaderRow:
        """Decode a header, as a script or the client returns it."""
        pairs = fields if isinstance(fields, Mapping) else pairs_of(fields)
        return header_row(self.tenant, conversation, pairs)

    async def run_script(
        self, script: str, conversation: str, *args: Value, extra_keys: Sequence[str] = ()
    ) -> list[Any]:
        """Run a script on a conversation.

        Raises:
            ConversationNotFound: it does not exist.
        """
        recipient = self.engine.recipients.get((self.tenant, conversation))
        if recipient is not None:
            reply = await self._run_script(script, recipient, conversation, args, extra_keys)
            if reply[0] != b"missing":
                return reply
            self.engine.remove_from_cache(self.tenant, conversation)
        claim = await self.find_claim(conversation)
        if claim is None:
            raise ConversationNotFound(conversation)
        reply = await self._run_script(script, claim.recipient, conversation, args, extra_keys)
        if reply[0] == b"missing":
            raise ConversationNotFound(conversation)
        self.engine.add_to_cache(self.tenant, conversation, claim.recipient)
        return reply

    async def _run_script(
        self, script: str, recipient: str, conversation: str, args: Sequence[Value], extra_keys: Sequence[str]
    ) -> list[Any]:
        keys = [*self.keys.script_keys(recipient, conversation), *extra_keys]
        reply = await self.engine.run_script(script, keys, (self.id_hash(conversation), *args))
        if reply[0] == b"erased":
            raise ConversationErased(conversation)
        return reply

    async def find(self, conversation: str, idempotency_hash: bytes = b"") -> tuple[HeaderRow | None, bytes]:
        """Find a conversation, and the record of the append with this hash of an idempotency key, or b""."""
        try:
            reply = await self.run_script("get_header", conversation, idempotency_hash)
        except ConversationErased:
            raise
        except ConversationNotFound:
            return None, b""
        return self.row(conversation, reply[1]), reply[2]

    async def get(self, conversation: str) -> HeaderRow:
        """Find a conversation.

        Raises:
            ConversationNotFound: it does not exist.
        """
        return self.row(conversation, (await self.run_script("get_header", conversation, ""))[1])

    async def find_claim(self, conversation: str) -> IdClaim | None:
        """Find the claim of an id. Its conversation may not exist yet."""
        args = (conversation, self.id_hash(conversation))
        reply = await self.engine.run_script("find_claim", self.keys.index, args)
        if reply[0] == b"erased":
            raise ConversationErased(conversation)
        return IdClaim.parse(reply[1]) if reply[1] else None

    async def claim_id(self, conversation: str, recipient: str, created_at: int) -> IdClaim | None:
        """Claim the id of a new conversation; return None if another process has created the conversation.

        Raises:
            ConversationErased: the id was erased.
            RecipientBlocked: the recipient is blocked.
        """
        replaced_nonce = ""
        while True:
            args = (
                conversation,
                self.id_hash(conversation),
                uuid4().hex,
                rank_of(created_at),
                recipient,
                replaced_nonce,
                recipient_hash(self.tenant, recipient),
            )
            reply = await self.engine.run_script("claim_conversation_id", self.keys.index, args)
            if reply[0] == b"erased":
                raise ConversationErased(conversation)
            if reply[0] == b"blocked":
                raise RecipientBlocked(recipient)
            claim, age_milliseconds = IdClaim.parse(reply[1]), reply[2]
            if claim.recipient == recipient and age_milliseconds < STALE_MILLISECONDS:
                return claim
            if not await self.void_claim(conversation, claim):
                return None
            replaced_nonce = claim.nonce

    async def void_claim(self, conversation: str, claim: IdClaim) -> bool:
        """Void a claim unless its conversation exists; return whether it is void."""
        recipient = claim.recipient
        keys = (
            self.keys.header(recipient, conversation),
            self.keys.void(recipient, claim.nonce),
            self.keys.order(recipient),
        )
        member = claim.rank + conversation
        return bool((await self.engine.run_script("void_claim", keys, (member, VOID_MILLISECONDS)))[1])

    def keys_of_claim(self, conversation: str, recipient: str, nonce: str) -> list[str]:
        """The keys of a script that creates or changes a conversation if its claim is not void."""
        return [*self.keys.script_keys(recipient, conversation), self.keys.void(recipient, nonce)]
