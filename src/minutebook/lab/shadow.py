"""What pruning would have done to the requests that a service recorded in shadow mode.

In shadow mode the service sends everything, and stores with each request the settings that it would prune with. The
conversations are replayed with these settings.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from minutebook.agent.messages import usage_from
from minutebook.conversation.config import RETENTION, ConversationConfig, RetentionConfig
from minutebook.conversation.policy import Policy, policy_named
from minutebook.lab.databases import StoredConversations
from minutebook.lab.policies import CommandLineSettings
from minutebook.lab.report import DEFAULT_BUDGET, Report, evaluate
from minutebook.lab.sessions import RecordedSession, stored_session
from minutebook.tokens.models import ModelInfo

PRUNED: Final = "with pruning"


@dataclass(slots=True)
class ShadowGroup:
    """The conversations that were recorded in shadow mode with one policy."""

    policy: Mapping[str, Any]
    """The policy with its settings, as the requests have it."""
    conversations: list[str] = field(default_factory=list)
    requests: int = 0
    tokens_sent: int = 0
    """Tokens of the messages that were sent, as the service counted them."""
    reported: int = 0
    """Input tokens that the provider reported, with tools."""
    reported_cached: int = 0
    report: Report | None = None
    """The replay of the conversations with pruning. None unless the policy is `retention`: requests have the settings of no other."""

    def to_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "report"}
        return {**values, "report": None if self.report is None else self.report.to_json()}


def shadow_groups(stored: StoredConversations, *, jobs: int | None = None) -> list[ShadowGroup]:
    """The conversations with requests in shadow mode, by policy, replayed as if the mode had been `on`."""
    groups: dict[str, ShadowGroup] = {}
    for header in stored.headers():
        requests = [document.body for document in stored.requests(header.id) if document.body.get("mode") == "shadow"]
        if requests:
            policy = requests[-1]["policy"]
            group = groups.setdefault(json.dumps(policy, sort_keys=True), ShadowGroup(policy))
            group.conversations.append(header.id)
            _add(group, requests)
    for group in groups.values():
        if group.policy["name"] == RETENTION:
            group.report = evaluate(
                {PRUNED: partial(_retention, group.policy)},
                _sessions(stored, group.conversations),
                budget=group.policy["max_tokens"] or DEFAULT_BUDGET,
                jobs=jobs,
            )
    return sorted(groups.values(), key=lambda group: -group.requests)


def _add(group: ShadowGroup, requests: Iterable[Mapping[str, Any]]) -> None:
    for request in requests:
        group.requests += 1
        group.tokens_sent += request["tokens_before"]
        if isinstance(request.get("usage"), Mapping):
            usage = usage_from(request["usage"])
            group.reported += usage.input_tokens
            group.reported_cached += usage.cached_tokens


def _sessions(stored: StoredConversations, conversations: Iterable[str]) -> Iterator[RecordedSession]:
    return (stored_session(stored, conversation) for conversation in conversations)


def _retention(recorded: Mapping[str, Any], budget: int) -> Policy:
    """The recorded policy with the mode `on`."""
    retention = RetentionConfig(**{**recorded["retention"], "mode": "on"})
    settings = CommandLineSettings(ConversationConfig(retention=retention))
    return policy_named(RETENTION, settings, model=ModelInfo("any", max_input_tokens=budget), max_tokens=budget)
