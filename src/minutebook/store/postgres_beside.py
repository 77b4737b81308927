"""What a group of appends needs besides the record: the leases that they show, and the documents that come along."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from minutebook.store import postgres_documents, postgres_leases
from minutebook.store.documents import Document, PackedDocument, Verdict
from minutebook.store.leases import Lease, require_standing
from minutebook.store.postgres_documents import Name
from minutebook.store.postgres_work import Work
from minutebook.store.request import AppendRequest

Plan = list[tuple[str, PackedDocument, Verdict, datetime]]
"""For each document: its conversation, what is to be done with it, and when that was asked for."""


@dataclass(slots=True)
class Beside:
    """Looked up once for a group, if any of it needs anything."""

    leases: Mapping[str, Lease] = field(default_factory=dict)
    now: datetime | None = None
    """The time of the database, where somebody shows a lease."""
    stored: dict[Name, Document] = field(default_factory=dict)
    planned: dict[Name, Document] = field(default_factory=dict)
    """The documents as they will be, after those that were decided on."""
    plan: Plan = field(default_factory=list)
    released: list[Lease] = field(default_factory=list)
    """Those that are given back with the commit."""

    @classmethod
    async def of(cls, work: Work, requests: Sequence[AppendRequest]) -> Self:
        """What is there for some appends, under the locks of their conversations."""
        made = cls()
        leased = {request.lease.conversation for request in requests if request.lease is not None}
        if leased:
            made.leases, made.now = await postgres_leases.held(work, leased)
        names = [(one.kind, one.id) for request in requests for one in request.documents]
        made.stored = await postgres_documents.find(work, sorted(set(names)))
        made.planned = dict(made.stored)
        return made

    def require_lease(self, lease: Lease | None) -> None:
        """Raises `LeaseLost` unless the lease stands; none need not."""
        if lease is not None and self.now is not None:
            is_released = any(lease.fence == one.fence for one in self.released)  # renewed or not, it is the same
            require_standing(None if is_released else self.leases.get(lease.conversation), lease, self.now)

    def release(self, request: AppendRequest) -> None:
        """Note that a lease is given back, if it is."""
        if request.release and request.lease is not None:
            self.released.append(request.lease)

    def decide(self, conversation: str, documents: Sequence[PackedDocument], at: datetime) -> Plan:
        """What is to be done with the documents of one append.

        Raises:
            DocumentExists: one of them may not stand where it would.
        """
        verdicts = postgres_documents.decided(conversation, documents, self.planned, at)
        return [(conversation, one, verdict, at) for one, verdict in zip(documents, verdicts, strict=True)]

    def take(self, plan: Plan) -> None:
        """Note what will be done."""
        for conversation, one, _, at in plan:
            self.planned[one.kind, one.id] = one.stored(conversation, 0, at)
        self.plan += plan

    async def write(self, work: Work, numbers: Mapping[str, int]) -> None:
        """Do it, in the order in which it was asked for."""
        for conversation, one, verdict, at in self.plan:
            name, place = (one.kind, one.id), (conversation, numbers[conversation])
            known = self.stored.get(name)
            self.stored[name] = await postgres_documents.write(work, place, one, verdict, known, at)
        for kind, at in {one.kind: at for _, one, _, at in self.plan}.items():
            await postgres_documents.sweep_kind(work, kind, at)
