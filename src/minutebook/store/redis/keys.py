"""The names of the keys in Redis.

The list of a recipient's conversations is `conversation:{recipient}`, and the keys of these conversations start with it. The
recipient is in braces (a hash tag), so that a cluster stores the keys in one slot and a script can change them atomically.
For another tenant than `default`, the braces contain tenant and recipient: `conversation:{tenant/recipient}`. The index of a tenant's ids has only the tenant in braces: it says which
recipient a conversation belongs to. No atomic change needs both.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

PARTS: Final = (
    *("header", "entries", "roles", "turns", "folds", "fold-ids"),
    *("standing", "pins", "answers", "blobs", "uses"),
    *("documents", "document-order", "document-ends", "fence"),
)
"""The keys of one conversation, in the order that the scripts expect.

Some have names of an earlier version: `standing` has the active folds, `answers` the idempotency keys, `blobs` the large
payloads, and `document-ends` the expiry times of documents.
"""
_ESCAPES: Final = str.maketrans({"%": "%25", "/": "%2F", "{": "%7B", "}": "%7D"})
DEFAULT_TENANT: Final = "default"
"""Not in the names of a recipient's keys. Slashes in names are escaped, so they are different from those of other tenants."""
_MAX_MICROSECONDS: Final = (1 << 63) - 1
_RANK_CHARACTERS: Final = 16


class IndexKeys(NamedTuple):
    """The keys of a tenant's index of conversation ids."""

    claims: str
    """A hash: id → claim."""
    order: str
    """A sorted set of the ids, newest first."""
    erased: str
    """A set of the tombstones of erased ids."""
    blocked: str
    """A set of the hashes of blocked recipients."""


@dataclass(frozen=True, slots=True)
class TenantKeys:
    """The names of one tenant's keys."""

    prefix: str
    tenant: str

    @property
    def index(self) -> IndexKeys:
        return IndexKeys(*map(self._tenant_key, ("place", "order", "erased", "blocked")))

    def header(self, recipient: str, conversation: str) -> str:
        return self._recipient_key(recipient, f"header:{conversation}")

    def parts(self, recipient: str, conversation: str) -> list[str]:
        """The keys of one conversation."""
        return [self._recipient_key(recipient, f"{part}:{conversation}") for part in PARTS]

    def script_keys(self, recipient: str, conversation: str) -> list[str]:
        """The keys that every script on a conversation takes: its own, and those shared by the recipient's conversations."""
        shared_keys = (self.order(recipient), self.erased(recipient), self.changes(recipient))
        return [*self.parts(recipient, conversation), *shared_keys]

    def order(self, recipient: str) -> str:
        """A sorted set of the recipient's conversations, newest first."""
        return self._recipient_key(recipient)

    def erased(self, recipient: str) -> str:
        return self._recipient_key(recipient, "erased")

    def changes(self, recipient: str) -> str:
        """A counter of the recipient's conversations that were created or erased."""
        return self._recipient_key(recipient, "changes")

    def erased_ids(self, recipient: str) -> str:
        """The ids of erased conversations that are still in the tenant's index."""
        return self._recipient_key(recipient, "leaving")

    def erased_documents(self, recipient: str) -> str:
        """The documents of erased conversations that are still in the tenant's index."""
        return self._recipient_key(recipient, "leaving-documents")

    def document_claims(self) -> str:
        """A hash: key of a document → claim, which names its conversation."""
        return self._tenant_key("documents")

    def requests(self) -> str:
        """A sorted set: key of a request's minutes by the microsecond when they were first written."""
        return self._tenant_key("requests")

    def document_index(self) -> list[str]:
        """The keys that a change of a claim takes."""
        return [self.document_claims(), self.requests()]

    def lease(self, id_hash: bytes) -> str:
        """The lease on a conversation. It has a hash of the id, because it may outlive the erasure of the conversation."""
        return self._tenant_key(f"lease:{id_hash.hex()}")

    def last_fence(self) -> str:
        """The fence of the tenant's newest lease."""
        return self._tenant_key("fence")

    def void(self, recipient: str, nonce: str) -> str:
        """Exists if the claim with this nonce is void."""
        return self._recipient_key(recipient, f"void:{nonce}")

    def _recipient_key(self, recipient: str, name: str = "") -> str:
        tenant = "" if self.tenant == DEFAULT_TENANT else f"{_escaped(self.tenant)}/"
        return f"{self.prefix}conversation:{{{tenant}{_escaped(recipient)}}}" + (f":{name}" if name else "")

    def _tenant_key(self, name: str) -> str:
        return f"{self.prefix}conversations:{{{_escaped(self.tenant)}}}:{name}"


def all_tenants_pattern(prefix: str) -> str:
    """A pattern for the names of the keys with the conversation ids of all tenants. A tenant without any has no such key."""
    return re.sub(r"([\\*?\[\]^])", r"\\\1", prefix) + "conversations:{*}:place"


@dataclass(frozen=True, slots=True)
class IdClaim:
    """An entry of the tenant's index: it reserves an id for a recipient. The conversation may not exist yet."""

    nonce: str
    rank: str
    recipient: str

    @classmethod
    def parse(cls, value: bytes) -> "IdClaim":
        nonce, _claimed_at, rank, recipient = value.decode().split(":", 3)
        return cls(nonce, rank, recipient)


def rank_of(created_at: int) -> str:
    """A text that sorts newer conversations first. The id follows it in a sorted set, for conversations of the same time."""
    return f"{_MAX_MICROSECONDS - created_at:016x}"


def created_at_of(rank: str) -> int:
    return _MAX_MICROSECONDS - int(rank, 16)


def order_member(created_at: int, conversation: str) -> str:
    """The member of a sorted set for a conversation."""
    return rank_of(created_at) + conversation


def parse_order_member(member: str) -> tuple[int, str]:
    """The creation time and the id of a member."""
    return created_at_of(member[:_RANK_CHARACTERS]), member[_RANK_CHARACTERS:]


def _escaped(name: str) -> str:
    return name.translate(_ESCAPES)
