"""Managers that take whole tool calls out of the older conversation."""

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from minutebook.history.curation import NoteStatus, ViewNote
from minutebook.history.incremental import IncrementalManager, IncrementalView, KeepSet, RewriteDraft, last_exchange
from minutebook.history.protocol import SessionProtocol
from minutebook.history.window import require_count, stepped
from minutebook.record.message import Message, call_ids, call_names, is_result, result_id, role_of, text_of
from minutebook.record.transcript import Transcript

Active: TypeAlias = Callable[[SessionProtocol | None], Collection[str]]


@dataclass(slots=True, frozen=True)
class ToolStripper(IncrementalManager):
    """Show older turns as user and assistant text only; the newest turns keep their tool calls and results whole.

    Each turn that grows old changes the view in front of the newest turns, so these are written to the prompt cache once
    more. Where tool results are short, as in chat, that costs a little more than sending everything (1.04 times, replayed
    over customer-service dialogues); give it `slack` and it strips several turns at once.

    Raises:
        InvalidSetting: a number is negative.
    """

    preserve_turns: int = 2
    """How many of the newest turns stay as they are."""
    slack: int = 0
    """How many turns more than `preserve_turns` may gather before the old ones are stripped."""

    def __post_init__(self) -> None:
        require_count("preserve_turns", self.preserve_turns)
        require_count("slack", self.slack)

    def draft(self, source: Transcript, keep: KeepSet, basis: Hashable) -> IncrementalView:  # noqa: ARG002
        return RewriteDraft(source, keep, self._boundary, self._rewrite)

    def fits(self, messages: Sequence[Message]) -> bool:
        transcript = Transcript.of(messages)
        end = self._boundary(transcript)
        return all(self._rewrite(transcript, place) is None for place in range(end))

    def _boundary(self, source: Transcript) -> int:
        turns = source.turn_starts
        old = stepped(len(turns), self.preserve_turns, self.slack)
        boundary = turns[old] if old < len(turns) else len(source)
        return min(boundary, last_exchange(source).start) if old else 0

    def _rewrite(self, source: Transcript, place: int) -> tuple[Message | None, ViewNote] | None:
        message = source[place]
        reason = f"tool details older than the last {self.preserve_turns} turns"
        if is_result(message):
            return None, ViewNote(NoteStatus.DROPPED, reason)
        if role_of(message) == "assistant" and call_ids(message):
            return without_calls(message, call_ids(message), reason)
        return None


@dataclass(slots=True, frozen=True)
class ActiveToolsManager(IncrementalManager):
    """Keep only the calls and results of tools that are still offered to the model.

    Some providers refuse a request whose history calls a tool that is not in its tool list. The exchange that the
    model is about to answer always stays.
    """

    active: Active | frozenset[str]
    """The names of the tools on offer, or a function that finds them in the session."""

    def __post_init__(self) -> None:
        if not callable(self.active):
            object.__setattr__(self, "active", frozenset(self.active))

    def basis(self, session: SessionProtocol | None) -> Hashable:
        return frozenset(self.active(session)) if callable(self.active) else self.active

    def draft(self, source: Transcript, keep: KeepSet, basis: Hashable) -> IncrementalView:
        assert isinstance(basis, frozenset)

        def rewrite(source: Transcript, place: int) -> tuple[Message | None, ViewNote] | None:
            return _inactive_removed(source, place, basis)

        return RewriteDraft(source, keep, _boundary_of_past, rewrite)

    def fits(self, messages: Sequence[Message]) -> bool:
        if callable(self.active):
            return False
        return all(name in self.active for message in messages for name in call_names(message))


def _boundary_of_past(source: Transcript) -> int:
    return last_exchange(source).start


def _inactive_removed(source: Transcript, place: int, active: frozenset[str]) -> tuple[Message | None, ViewNote] | None:
    calling = source[source.exchange_of(place).start]
    gone = {
        call_id: name
        for call_id, name in zip(call_ids(calling), call_names(calling), strict=True)
        if name not in active
    }
    message = source[place]
    if not gone or role_of(calling) != "assistant":
        return None
    if is_result(message):
        name = gone.get(result_id(message))
        return None if name is None else (None, ViewNote(NoteStatus.DROPPED, f"tool {name!r} is no longer offered"))
    return without_calls(message, list(gone), f"tool {next(iter(gone.values()))!r} is no longer offered")


def without_calls(message: Message, gone: Collection[str], reason: str) -> tuple[Message | None, ViewNote]:
    """The assistant message without these calls; nothing if it then says nothing."""
    calls: list[Any] = [call for call in message.get("tool_calls") or () if call.get("id") not in gone]
    left = {key: value for key, value in message.items() if key not in {"tool_calls", "function_call"}}
    if calls:
        return {**left, "tool_calls": calls}, ViewNote(NoteStatus.STRIPPED, reason)
    if not text_of(message) and not message.get("refusal"):
        return None, ViewNote(NoteStatus.DROPPED, reason)
    return left, ViewNote(NoteStatus.STRIPPED, reason)
