"""What a service recorded in shadow mode: everything was sent, and the view that the policy would have sent was computed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from minutebook.agent.messages import usage_from
from minutebook.lab.databases import StoredConversations
from minutebook.store.types import Document


@dataclass(slots=True)
class ShadowTotals:
    """The recorded requests of one policy in shadow mode."""

    policy: str
    conversations: int = 0
    requests: int = 0
    pruned: int = 0
    """Requests from which the policy would have left something out."""
    cuts: int = 0
    """Requests whose view changes an earlier message that the view before it had. The provider's cache ends there."""
    failed: int = 0
    """Requests for which no view could be computed."""
    tokens_sent: int = 0
    tokens_pruned: int = 0
    """Tokens that the policy would have sent instead."""
    reported: int = 0
    """Input tokens that the provider reported."""
    reported_cached: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Reason → messages that would have been changed or left out for it in the newest request of each conversation."""

    @property
    def share(self) -> float:
        """The tokens that the policy would have sent, relative to those that were sent."""
        return self.tokens_pruned / self.tokens_sent if self.tokens_sent else 1.0

    def to_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "reasons"}
        return {**values, "share": self.share, "reasons": dict(self.reasons.most_common())}


def shadow_report(stored: StoredConversations) -> list[ShadowTotals]:
    """The totals of all recorded requests in shadow mode, by policy."""
    totals: dict[str, ShadowTotals] = {}
    for header in stored.headers():
        requests = [document for document in stored.requests(header.id) if document.body.get("mode") == "shadow"]
        for policy, documents in _by_policy(requests).items():
            _add(totals.setdefault(policy, ShadowTotals(policy)), documents)
    return sorted(totals.values(), key=lambda one: -one.requests)


def _by_policy(documents: Iterable[Document]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for document in documents:
        found.setdefault(str(document.body["policy"]["name"]), []).append(document.body)
    return found


def _add(totals: ShadowTotals, requests: list[Mapping[str, Any]]) -> None:
    totals.conversations += 1
    previous: Mapping[str, Any] | None = None
    for request in requests:
        totals.requests += 1
        totals.pruned += bool(request["left_out"])
        totals.failed += request.get("bypass") is not None
        totals.tokens_sent += request["tokens_before"]
        totals.tokens_pruned += request["tokens_after"]
        if isinstance(request.get("usage"), Mapping):
            usage = usage_from(request["usage"])
            totals.reported += usage.input_tokens
            totals.reported_cached += usage.cached_tokens
        totals.cuts += previous is not None and _changes_before(request, previous)
        previous = request
    for item in requests[-1]["left_out"]:
        totals.reasons[f"{item['status']}: {item['reason']}"] += item["stop"] - item["start"]


def _changes_before(request: Mapping[str, Any], previous: Mapping[str, Any]) -> bool:
    """Whether the view treats a message differently that was already in the previous request."""
    return dict(_changed(request, previous["length"])) != dict(_changed(previous, previous["length"]))


def _changed(request: Mapping[str, Any], stop: int) -> Iterator[tuple[int, str]]:
    for item in request["left_out"]:
        for position in range(item["start"], min(item["stop"], stop)):
            yield position, item["status"]
