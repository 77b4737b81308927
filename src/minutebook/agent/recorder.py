"""Records messages: appends each to the conversation and publishes it on the bus, where the session receives it.

`with_valid_tool_calls` prepares a model's message for the record: some OpenAI-compatible servers omit or repeat call ids.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

from minutebook.errors import PromptEvaluationError
from minutebook.history.protocol import EventBus
from minutebook.record.entry import ConversationEntry, ConversationRecorded
from minutebook.record.message import Message
from minutebook.record.repairs import placeholder_result
from minutebook.record.transcript import Transcript
from minutebook.wire.chat import provider_message_to_entry

INTERRUPTED: Final = '{"error":"interrupted","reason":"the run ended before this call was answered"}'
"""The content of the tool result for a call that got none before the run ended."""


def interrupted_result(call_id: str) -> Message:
    """The result of a call that got none before the run ended."""
    return {**placeholder_result(call_id), "content": INTERRUPTED, "is_error": True}


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Records the messages of one evaluation, with consecutive sequence numbers.

    Nothing here is async, so a cancellation cannot come between appending a message and publishing it.
    """

    conversation: Transcript
    bus: EventBus
    session_id: UUID | None
    scope: UUID | None
    """The evaluation's id if it runs inside another evaluation of the session."""
    prompt_name: str
    evaluation_id: UUID
    provider: str
    model: str
    clock: Callable[[], datetime]
    sequence: int = 0
    unsaved_entries: list[ConversationEntry] = field(default_factory=list)
    """The appended entries that were not yet passed to the stored conversation."""

    def record(self, message: Message, *, is_prompt: bool = False) -> None:
        """Append a message to the conversation and publish it.

        Raises:
            InvalidMessage: the message is malformed. Nothing was recorded.
            BrokenConversation: the message breaks the pairing of calls and results. Nothing was recorded.
            PromptEvaluationError: an event handler failed; the other handlers got the message.
        """
        entry = self._entry(message)
        position = self.conversation.append(message)
        self.unsaved_entries.append(entry)
        self._publish(entry, position, is_prompt=is_prompt)

    def record_changed_prompt(self, message: Message) -> None:
        """Publish the prompt's new text without appending it: in the conversation, a fold shows it at its old index."""
        self._publish(self._entry(message), None, is_prompt=True)

    def close_open_calls(self, results: Mapping[str, Message]) -> None:
        """Record a result for every open call: the one in `results` (by call id), or one that says that it was interrupted."""
        first_error: PromptEvaluationError | None = None
        for call_id in self.conversation.open_calls:
            try:
                self.record(results.get(call_id) or interrupted_result(call_id))
            except PromptEvaluationError as error:  # the remaining calls still need their results
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def _entry(self, message: Message) -> ConversationEntry:
        return provider_message_to_entry(
            message,
            evaluation_id=self.evaluation_id,
            sequence=self.sequence,
            created_at=self.clock(),
            provider=self.provider,
            model=self.model,
        )

    def _publish(self, entry: ConversationEntry, position: int | None, *, is_prompt: bool) -> None:
        self.sequence += 1
        event = ConversationRecorded(entry, self.session_id, entry.created_at, position, is_prompt, self.scope)
        raise_handler_error(self.bus.publish(event), self.prompt_name, "record")


def raise_handler_error(result: object, prompt_name: str, phase: str) -> None:
    """Raise if a handler of a published event failed.

    Raises:
        PromptEvaluationError: a handler failed; the other handlers got the event.
    """
    failures = getattr(result, "errors", ())
    if failures:
        error = failures[0].error
        raise PromptEvaluationError(prompt_name, phase, f"{type(error).__name__}: {error}") from error


def with_valid_tool_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with a unique id in every tool call. Function calls also get a type, a name and arguments."""
    calls = message.get("tool_calls")
    if not calls:
        return {key: value for key, value in message.items() if key != "tool_calls"}
    used_ids: set[str] = set()
    valid_calls = []
    for call in calls:
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in used_ids:
            call_id = f"call_{uuid4().hex[:24]}"
        used_ids.add(call_id)
        valid_calls.append(_valid_call(call, call_id))
    return {**message, "tool_calls": valid_calls}


def _valid_call(call: Mapping[str, Any], call_id: str) -> dict[str, Any]:
    if isinstance(call.get("custom"), Mapping):
        return {**call, "id": call_id}
    function = call.get("function") or {}
    function = {**function, "name": function.get("name") or "", "arguments": function.get("arguments") or ""}
    return {**call, "id": call_id, "type": "function", "function": function}
