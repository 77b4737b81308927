"""How things are called in Redis.

All that belongs to a recipient's conversations has the recipient in braces, so that a cluster keeps it in one slot and one
script can change it as a whole. Ids are looked up in a list of all, which has the tenant in braces: it says whom a
conversation is with. What must be atomic never needs both.
"""

from dataclasses import dataclass
from typing import Final

PARTS: Final = (
    *("header", "entries", "roles", "turns", "folds", "fold-ids"),
    *("standing", "pins", "answers", "blobs", "uses"),
    *("documents", "document-order", "document-ends", "fence"),
)
"""The keys of one conversation, in the order in which the scripts know them."""
_ESCAPES: Final = str.maketrans({"%": "%25", "/": "%2F", "{": "%7B", "}": "%7D"})
_FAR: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of one tenant's keys."""

    prefix: str
    tenant: str

    def catalogue(self) -> list[str]:
        """The list of all: id → claim, the ids in order, what was erased."""
        return [self._of_tenant(kind) for kind in ("place", "order", "erased")]

    def parts(self, recipient: str, conversation: str) -> list[str]:
        """The keys of one conversation."""
        return [self._of(recipient, f"{part}:{conversation}") for part in PARTS]

    def conversation(self, recipient: str, conversation: str) -> list[str]:
        """The keys of one conversation, and those that its recipient's conversations share."""
        shared = (self.order(recipient), self.erased(recipient), self.changes(recipient))
        return [*self.parts(recipient, conversation), *shared]

    def order(self, recipient: str) -> str:
        return self._of(recipient, "order")

    def erased(self, recipient: str) -> str:
        return self._of(recipient, "erased")

    def changes(self, recipient: str) -> str:
        return self._of(recipient, "changes")

    def leaving(self, recipient: str) -> str:
        """What was erased here and still has to leave the list of all."""
        return self._of(recipient, "leaving")

    def leaving_documents(self, recipient: str) -> str:
        """The documents of what was erased here, which still have to leave the list of all."""
        return self._of(recipient, "leaving-documents")

    def documents(self) -> str:
        """Whose each document is, by its name."""
        return self._of_tenant("documents")

    def lease(self, mark: bytes) -> str:
        """Who works on a conversation. Its id is not in it, since it need not be there, and must not stay."""
        return self._of_tenant(f"lease:{mark.hex()}")

    def fence(self) -> str:
        """The number of the last lease."""
        return self._of_tenant("fence")

    def void(self, recipient: str, nonce: str) -> str:
        return self._of(recipient, f"void:{nonce}")

    def _of(self, recipient: str, what: str) -> str:
        return f"{self.prefix}conversation:{{{_tag(self.tenant)}/{_tag(recipient)}}}:{what}"

    def _of_tenant(self, what: str) -> str:
        return f"{self.prefix}conversations:{{{_tag(self.tenant)}}}:{what}"


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose a conversation is, as the list of all says. The conversation itself is made with it, or not at all."""

    nonce: str
    rank: str
    recipient: str

    @classmethod
    def read(cls, kept: bytes) -> "Claim":
        nonce, _since, rank, recipient = kept.decode().split(":", 3)
        return cls(nonce, rank, recipient)


def rank_of(created_at: int) -> str:
    """What sorts newest first, as text; the id that follows it decides between equals."""
    return f"{_FAR - created_at:016x}"


def created_at_of(rank: str) -> int:
    return _FAR - int(rank, 16)


def member_of(created_at: int, conversation: str) -> str:
    """A conversation's place in an ordered list."""
    return rank_of(created_at) + conversation


def _tag(name: str) -> str:
    return name.translate(_ESCAPES)
