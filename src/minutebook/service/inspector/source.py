"""What the pages read: a list of conversations, and the data of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.store.types import ConversationHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSummary:
    """A row of the list of conversations. A figure is None until it is known."""

    id: str
    title: str
    model: str | None = None
    messages: int = 0
    turns: int = 0
    record_tokens: int | None = None
    sent_tokens: int | None = None
    """Tokens of the newest request."""
    requests: int | None = None
    cost: float | None = None
    full_cost: float | None = None
    is_priced: bool = False
    """Whether the costs are in US dollars."""
    cuts: int | None = None
    folds: int = 0
    refusals: int | None = None
    errors: int = 0
    updated_at: datetime | None = None
    is_live: bool = False
    source: str = ""
    """Its file, if there are several, or its id in a database."""
    snippet: str = ""
    """Where the search matched."""
    snippet_position: int | None = None
    sparkline: Sequence[int] = ()
    """Tokens sent by at most 24 requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """Which conversations are listed, from the query of the URL."""

    q: str = ""
    model: str = ""
    min_cost: float | None = None
    """In US dollars."""
    has: frozenset[str] = frozenset()
    """`cut`, `fold`, `refusal`, `error`."""
    sort: str = "recent"
    after: int = 0

    @property
    def needs_figures(self) -> bool:
        """Whether the list depends on the figures of all conversations."""
        return bool(self.model or self.min_cost is not None or self.has or self.sort != "recent")

    def matches(self, summary: ConversationSummary) -> bool:
        counts = {"cut": summary.cuts, "fold": summary.folds, "refusal": summary.refusals, "error": summary.errors}
        return (
            (not self.model or self.model == summary.model)
            and (self.min_cost is None or (summary.is_priced and (summary.cost or 0.0) >= self.min_cost))
            and all(counts.get(name) for name in self.has)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationList:
    """One page of the list."""

    items: Sequence[ConversationSummary]
    total: int
    next: int | None = None
    """The value of `after` for the next page."""
    models: Sequence[str] = field(default_factory=list)
    is_complete: bool = True
    """False while figures are missing that a later list will have."""
    newest: int | None = None
    """Set if only this number of the newest conversations was searched."""
    problem: str = ""
    """What is wrong with the search query."""
    is_reading: bool = False
    """Whether files are still being read, so that conversations may be missing."""
    skipped: Sequence[str] = ()
    """Parts of files that were not understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchNode:
    """A conversation in the tree of branches."""

    id: str
    depth: int
    shared: int
    """Messages that it has in common with its origin."""
    messages: int
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BranchTree:
    """A conversation with its ancestors and descendants, each after its origin."""

    nodes: Sequence[BranchNode]
    is_complete: bool = True
    """False if there are too many newer conversations to search all of them for branches."""


class InspectorSource(Protocol):
    """Conversations that the pages show."""

    name: str
    """What is inspected, for the header: a path, a URL or a service."""
    can_write: bool
    """Whether folds may be undone."""

    is_live: bool
    """Whether conversations can grow while they are shown."""
    sorts: Sequence[str]
    """The values of `ListFilter.sort` that are supported."""
    filters: Sequence[str]
    """The values of `ListFilter.has` that are supported."""

    async def list(self, query: ListFilter) -> ConversationList:
        """The conversations that match the filter."""
        ...

    async def state(self, conversation_id: str) -> str:
        """A text that changes when the conversation does.

        Raises:
            ConversationNotFound: as in `open`.
        """
        ...

    async def open(self, conversation_id: str) -> InspectedConversation:
        """One conversation. Its requests may still be growing.

        Raises:
            ConversationNotFound: there is no such conversation, or the caller may not read it.
        """
        ...

    async def open_first(self, conversation_id: str) -> InspectedConversation:
        """As `open`, but of a conversation that takes long to load only the first messages and no requests.

        Raises:
            ConversationNotFound: as in `open`.
        """
        ...

    async def branches(self, conversation_id: str) -> "BranchTree":
        """The conversation with its ancestors and descendants that the caller may read, each after its origin.

        Raises:
            ConversationNotFound: as in `open`.
        """
        ...

    async def undo_fold(self, conversation_id: str, fold_id: str) -> None:
        """Undo a fold.

        Raises:
            FoldNotFound: there is no such fold.
            RequestRefused: conversations of this source cannot be changed.
        """
        ...


SORTS: Final[Mapping[str, Callable[[ConversationSummary], Any]]] = {
    "recent": lambda summary: -(summary.updated_at.timestamp() if summary.updated_at else 0.0),
    "cost": lambda summary: (not summary.is_priced, -(summary.cost or 0.0)),  # other costs are not in dollars
    "tokens": lambda summary: -(summary.record_tokens or 0),
    "turns": lambda summary: -summary.turns,
    "cuts": lambda summary: -(summary.cuts or 0),
}
"""Value of `sort` → the key of a summary."""


def summary_of(conversation: InspectedConversation, updated_at: datetime | None = None) -> ConversationSummary:
    """The summary of a conversation that is loaded."""
    requests = conversation.requests
    done = conversation.is_complete
    step = max(1, -(-len(requests) // 24))
    return ConversationSummary(
        id=conversation.id,
        title=conversation.title,
        model=conversation.model,
        messages=len(conversation.messages),
        turns=len(conversation.turn_starts),
        record_tokens=conversation.record.tokens if done else None,
        sent_tokens=requests[-1].sent if requests and done else None,
        requests=len(requests) if done else None,
        cost=conversation.series.cost if done else None,
        full_cost=conversation.series.full_cost if done else None,
        is_priced=conversation.pricing.is_known,
        cuts=sum(request.cache_break is not None for request in requests) if done else None,
        folds=sum(item.undone_at is None for item in conversation.folds),
        refusals=sum(request.refusal is not None for request in requests) if done else None,
        errors=sum(request.problem is not None for request in requests),
        updated_at=updated_at or next((at for at in reversed(conversation.times) if at is not None), None),
        source=conversation.source,
        sparkline=[max(request.sent for request in requests[index : index + step]) for index in range(0, len(requests), step)],
    )  # fmt: skip


def branch_tree(headers: Mapping[str, ConversationHeader], conversation_id: str) -> list[BranchNode]:
    """The tree of a conversation's branches, in depth-first order. Origins that are not among the headers are left out."""
    children: dict[str, list[ConversationHeader]] = {}
    for header in headers.values():
        if header.origin is not None:
            children.setdefault(header.origin.conversation, []).append(header)
    root = conversation_id
    while root in headers and (origin := headers[root].origin) is not None and origin.conversation in headers:
        root = origin.conversation
    nodes, stack = list[BranchNode](), [(root, 0)]
    while stack:
        name, depth = stack.pop()
        found = headers.get(name)
        if found is not None:
            shared = 0 if found.origin is None else found.origin.position
            nodes.append(BranchNode(id=name, depth=depth, shared=shared, messages=found.length, updated_at=found.updated_at))  # fmt: skip
        following = sorted(children.get(name, ()), key=lambda item: item.origin.position if item.origin else 0)
        stack += [(item.id, depth + 1) for item in reversed(following)]
    return nodes
