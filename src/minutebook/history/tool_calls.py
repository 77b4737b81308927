"""Managers that remove whole tool calls from older messages."""

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from minutebook.history.curation import NoteStatus, ViewNote
from minutebook.history.incremental import (
    IncrementalManager,
    IncrementalRewrite,
    IncrementalView,
    PreservedMessages,
    last_exchange,
)
from minutebook.history.protocol import SessionProtocol
from minutebook.history.window import count_before_window, require_count
from minutebook.record.message import Message, call_ids, call_names, is_result, result_id, role_of, text_of
from minutebook.record.transcript import Transcript

ActiveTools: TypeAlias = Callable[[SessionProtocol | None], Collection[str]]
"""Returns the names of the tools that are offered to the model."""


@dataclass(slots=True, frozen=True)
class ToolStripper(IncrementalManager):
    """Remove tool calls and results from older turns, so that only the text of user and assistant remains.

    Each turn that becomes old changes the view before the newest turns, so these are written to the prompt cache again.
    If tool results are short, as in chat, that costs slightly more than sending everything (1.04 times, replayed over
    customer-service dialogues). With `slack`, several turns are stripped together.

    Raises:
        InvalidSetting: a number is negative.
    """

    preserve_turns: int = 2
    """Number of newest turns that stay unchanged."""
    slack: int = 0
    """Number of turns above `preserve_turns` before the old ones are stripped."""

    def __post_init__(self) -> None:
        require_count("preserve_turns", self.preserve_turns)
        require_count("slack", self.slack)

    def new_view(self, source: Transcript, preserved: PreservedMessages, view_input: Hashable) -> IncrementalView:  # noqa: ARG002
        return IncrementalRewrite(source, preserved, self._boundary, self._rewrite)

    def fits(self, messages: Sequence[Message]) -> bool:
        transcript = Transcript.of(messages)
        end = self._boundary(transcript)
        return all(self._rewrite(transcript, index) is None for index in range(end))

    def _boundary(self, source: Transcript) -> int:
        turn_starts = source.turn_starts
        old_count = count_before_window(len(turn_starts), self.preserve_turns, self.slack)
        if not old_count:
            return 0
        boundary = turn_starts[old_count] if old_count < len(turn_starts) else len(source)
        return min(boundary, last_exchange(source).start)

    def _rewrite(self, source: Transcript, index: int) -> tuple[Message | None, ViewNote] | None:
        message = source[index]
        reason = f"tool details older than the last {self.preserve_turns} turns"
        if is_result(message):
            return None, ViewNote(NoteStatus.DROPPED, reason)
        if role_of(message) == "assistant" and call_ids(message):
            return without_calls(message, call_ids(message), reason)
        return None


@dataclass(slots=True, frozen=True)
class ActiveToolsManager(IncrementalManager):
    """Keep only the calls and results of tools that are still offered to the model.

    Some providers reject a request whose history calls a tool that is not in its tool list. The exchange that the model is
    about to answer always stays.
    """

    active: ActiveTools | frozenset[str]
    """Names of the offered tools, or a function that gets them from the session."""

    def __post_init__(self) -> None:
        if not callable(self.active):
            object.__setattr__(self, "active", frozenset(self.active))

    def view_input(self, session: SessionProtocol | None) -> Hashable:
        return frozenset(self.active(session)) if callable(self.active) else self.active

    def new_view(self, source: Transcript, preserved: PreservedMessages, view_input: Hashable) -> IncrementalView:
        assert isinstance(view_input, frozenset)

        def rewrite(source: Transcript, index: int) -> tuple[Message | None, ViewNote] | None:
            return _without_inactive_calls(source, index, view_input)

        return IncrementalRewrite(source, preserved, _last_exchange_start, rewrite)

    def fits(self, messages: Sequence[Message]) -> bool:
        if callable(self.active):
            return False
        return all(name in self.active for message in messages for name in call_names(message))


def _last_exchange_start(source: Transcript) -> int:
    return last_exchange(source).start


def _without_inactive_calls(
    source: Transcript, index: int, active: frozenset[str]
) -> tuple[Message | None, ViewNote] | None:
    """The rewrite of a message in an exchange with calls of inactive tools; None if it stays unchanged."""
    call_message = source[source.exchange_of(index).start]
    inactive_calls = {
        call_id: name
        for call_id, name in zip(call_ids(call_message), call_names(call_message), strict=True)
        if name not in active
    }
    message = source[index]
    if not inactive_calls or role_of(call_message) != "assistant":
        return None
    if is_result(message):
        name = inactive_calls.get(result_id(message))
        return None if name is None else (None, ViewNote(NoteStatus.DROPPED, f"tool {name!r} is no longer offered"))
    first_name = next(iter(inactive_calls.values()))
    return without_calls(message, list(inactive_calls), f"tool {first_name!r} is no longer offered")


def without_calls(message: Message, ids: Collection[str], reason: str) -> tuple[Message | None, ViewNote]:
    """The assistant message without the calls with these ids; None if it has neither calls nor text then."""
    calls: list[Any] = [call for call in message.get("tool_calls") or () if call.get("id") not in ids]
    other_keys = {key: value for key, value in message.items() if key not in {"tool_calls", "function_call"}}
    if calls:
        return {**other_keys, "tool_calls": calls}, ViewNote(NoteStatus.STRIPPED, reason)
    if not text_of(message) and not message.get("refusal"):
        return None, ViewNote(NoteStatus.DROPPED, reason)
    return other_keys, ViewNote(NoteStatus.STRIPPED, reason)
