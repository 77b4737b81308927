"""Says each message once to everybody who must hear of it: the conversation, and through the bus the session.

A model's message, made fit for the record: servers that are not OpenAI's forget ids and give one twice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

from minutebook.errors import PromptEvaluationError
from minutebook.history.protocol import EventBus
from minutebook.record.entry import ConversationEntry, ConversationRecorded
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.wire.chat import provider_message_to_entry

INTERRUPTED: Final = '{"error":"interrupted","reason":"the run ended before this call was answered"}'
"""The result of a call that nobody answered."""


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Numbers the messages of one evaluation without a gap, and leaves no call of it open.

    Nothing here waits for anything, so no cancellation can come between a message and its place in the record.
    """

    conversation: Transcript
    bus: EventBus
    session_id: UUID | None
    prompt_name: str
    evaluation_id: UUID
    provider: str
    model: str
    clock: Callable[[], datetime]
    sequence: int = 0

    def say(self, message: Message, *, is_prompt: bool = False) -> None:
        """Put a message at the end of the conversation and of the record.

        Raises:
            InvalidMessage: it is none. Nothing was recorded.
            BrokenConversation: it does not fit the ones before it. Nothing was recorded.
            PromptEvaluationError: someone who listens to the record failed; the others have the message.
        """
        entry = self._entry(message)
        position = self.conversation.append(message)
        self._publish(entry, position, is_prompt=is_prompt)

    def note(self, message: Message) -> None:
        """Put the prompt, rendered again, in the record alone: the conversation shows it in a place of its own."""
        self._publish(self._entry(message), None, is_prompt=True)

    def settle(self, finished: Mapping[str, Message]) -> None:
        """Give every open call its result: the one that is finished, or else that it was interrupted."""
        failure: PromptEvaluationError | None = None
        for call_id in self.conversation.open_calls:
            try:
                interrupted = {"role": "tool", "tool_call_id": call_id, "content": INTERRUPTED, "is_error": True}
                self.say(finished.get(call_id) or interrupted)
            except PromptEvaluationError as error:  # the rest still needs its results
                failure = failure or error
        if failure is not None:
            raise failure

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
        event = ConversationRecorded(entry, self.session_id, entry.created_at, position, is_prompt)
        publish(self.bus, event, self.prompt_name, "record")


def publish(bus: EventBus, event: object, prompt_name: str, phase: str) -> None:
    """Hand an event to the bus.

    Raises:
        PromptEvaluationError: someone who listens failed; the others have the event.
    """
    failures = getattr(bus.publish(event), "errors", ())
    if failures:
        first = failures[0].error
        raise PromptEvaluationError(prompt_name, phase, f"{type(first).__name__}: {first}") from first


def sound(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with an id of its own for every call, and a name and arguments that are text.

    Everything else is as the model said it.
    """
    calls = message.get("tool_calls")
    if not calls:
        return {key: value for key, value in message.items() if key != "tool_calls"}
    taken: set[str] = set()
    mended = []
    for call in calls:
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in taken:
            call_id = f"call_{uuid4().hex[:24]}"
        taken.add(call_id)
        mended.append(_whole(call, call_id))
    return {**message, "tool_calls": mended}


def _whole(call: Mapping[str, Any], call_id: str) -> dict[str, Any]:
    if isinstance(call.get("custom"), Mapping):
        return {**call, "id": call_id}
    function = call.get("function") or {}
    function = {**function, "name": function.get("name") or "", "arguments": function.get("arguments") or ""}
    return {**call, "id": call_id, "type": "function", "function": function}
