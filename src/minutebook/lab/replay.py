"""Replays a recorded session under a history policy, without a model: what each request would have sent and cost.

At each point where the model was called, the policy builds the view of the messages so far. The cost is computed with the
prices and the prompt cache of the provider.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias, runtime_checkable

from minutebook.conversation.policy import Policy
from minutebook.errors import CannotFit, InvalidSetting
from minutebook.history.curation import Curated
from minutebook.history.protocol import HistoryManager
from minutebook.history.view import View, view_of
from minutebook.lab.prompt_cache import Billing, Charge, PromptCache, billing_of
from minutebook.lab.prompt_items import PromptItems
from minutebook.lab.sessions import RecordedCall, RecordedSession
from minutebook.record.message import Message, Provider
from minutebook.record.transcript import Transcript
from minutebook.store.loop_thread import run_sync

FULL: Final = "full history"


@runtime_checkable
class Peer(Protocol):
    """A policy of another library. Its view is measured as it is, without the repairs that views of ours get."""

    def select(self, messages: Sequence[Message]) -> Sequence[tuple[Message, int | None]]:
        """The messages to send, each with its index in `messages`, or None for a message that is not among them."""
        ...


MakeManager: TypeAlias = Callable[[int], HistoryManager | Policy | Peer]
"""Returns the manager or policy for a budget in tokens. It is called once per session, so a manager may keep state."""
Policies: TypeAlias = Mapping[str, MakeManager | None]
"""Name → the function that makes its manager; None sends the full history."""


@dataclass(frozen=True, slots=True)
class ReplayedRequest:
    """One request of a session as a policy would have sent it."""

    call: RecordedCall
    """The call of the recording, with what its answer used. `call.index` is the length of the record at that time."""
    view: View | None
    """The messages to send; None if the policy refused."""
    charge: Charge
    """Tokens sent, cached and written, and their cost. All 0 if the policy refused."""
    full: Charge
    """The same for the full history at this call."""
    is_cut: bool
    """Whether the request is not the previous one with messages appended."""
    seconds: float
    """The CPU time that building the view took, so that it does not depend on other processes."""

    @property
    def record_length(self) -> int:
        return self.call.index

    @property
    def is_refused(self) -> bool:
        """Whether the essential messages exceed the budget."""
        return self.view is None


_NOTHING: Final = Charge(0, 0, 0, 0.0)


def replay_requests(
    session: RecordedSession, make_manager: MakeManager | None, budget: int, *, billing: Billing | None = None
) -> Iterator[ReplayedRequest]:
    """The requests of a session under a policy, one for each call of the model. Without a manager, everything is sent.

    `billing` is by default that of the session's model.
    """
    billing = billing or billing_of(session.model, session.models)
    record = Transcript(counter=session.counter, broken="mark")
    build = _all_messages if make_manager is None else _view_builder(make_manager(budget), billing.provider)
    items, cache = PromptItems(session.counter, billing.provider), PromptCache(billing)
    previous: Sequence[Message] = ()
    for call, full in zip(session.calls, full_charges(session, billing), strict=True):
        record.extend(session.messages[len(record) : call.index])
        started = time.process_time()
        view = build(record)
        seconds = time.process_time() - started
        if view is None:
            yield ReplayedRequest(call, None, _NOTHING, full, is_cut=False, seconds=seconds)
            continue
        messages = view.curated
        charge = cache.send(items.of(messages), session.seconds(call.index))
        yield ReplayedRequest(call, view, charge, full, not _continues(previous, messages), seconds)
        previous = messages


def full_charges(session: RecordedSession, billing: Billing) -> list[Charge]:
    """What the full history costs at each call. It is computed once per session and billing."""
    if billing not in session.charges:
        items, cache = PromptItems(session.counter, billing.provider), PromptCache(billing)
        session.charges[billing] = [
            cache.send(items.of(session.messages[: call.index]), session.seconds(call.index)) for call in session.calls
        ]
    return session.charges[billing]


def _all_messages(record: Transcript) -> View:
    return View(Curated(record, range(len(record))), record, length=len(record))


def _view_builder(manager: HistoryManager | Policy | Peer, provider: Provider) -> Callable[[Transcript], View | None]:
    """The function that builds the view of a growing record, or returns None if the essential messages do not fit."""
    if isinstance(manager, Peer):
        return partial(_peer_view, manager)
    if not isinstance(manager, Policy) and not hasattr(manager, "curate"):
        raise InvalidSetting("policy", manager, "a function that returns a history manager")
    policy = manager if isinstance(manager, Policy) else Policy("lab", manager)
    compaction = policy.compaction()

    def build(record: Transcript) -> View | None:
        try:
            folds = () if compaction is None else run_sync(compaction.check_and_apply(record)).folds
            return view_of(record, policy.manager, folds=folds, provider=provider)
        except CannotFit:
            return None

    return build


def _peer_view(peer: Peer, record: Transcript) -> View:
    selected = peer.select(record)
    return View(Curated((message for message, _ in selected), [at for _, at in selected]), record, length=len(record))


def _continues(previous: Sequence[Message], messages: Sequence[Message]) -> bool:
    """Whether a request is the previous one with messages appended."""
    if len(previous) > len(messages):
        return False
    return all(left is right or left == right for left, right in zip(previous, messages, strict=False))
