"""An answer of a thread as server-sent events: the text of the model, its tool calls, and the result.

The id of an event is `<run>:<number>:<characters>`: the run, the number of the event in it, and the length of the text so
far. A client that reconnects gets the events that it missed, or, from a server that has only the record, the rest of the
text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from minutebook.agent.events import AnswerRestarted, ModelAnswered, RunEvent, ToolAnswered, ToolCalled
from minutebook.agent.messages import TextDelta
from minutebook.compaction.manager import HistoryCompacted
from minutebook.errors import RequestRefused
from minutebook.service.http.errors import Failure
from minutebook.service.http.responses import sse
from minutebook.service.runs import Run

TEXT_SEPARATOR: Final = "\n\n"
"""Separates the text of a model call from that of the next one, after the tool results."""
_EVENT_ID: Final = re.compile(r"(?P<run>[A-Za-z0-9_]{1,120}):(?P<number>\d{1,9}):(?P<characters>\d{1,12})")


@dataclass(eq=False, slots=True)
class ThreadRun(Run):
    """A run that answers in a thread."""

    headers: dict[str, str] = field(default_factory=dict)
    """Response headers; complete when the first event is sent."""
    result: dict[str, Any] | None = None
    """The data of the `done` event."""
    sent_failure: Failure | None = None
    """The failure that was sent as the `error` event."""

    @property
    def interruption_error(self) -> RequestRefused:
        return RequestRefused(503, "The answer was cancelled before it was complete. Retry.", "run_cancelled")


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The last event of a run that a client has received."""

    run: str
    number: int = 0
    characters: int = 0


def parse_event_id(last_event_id: str) -> StreamPosition:
    """The position in a `Last-Event-ID` header.

    Raises:
        RequestRefused: it is not an event id of this service.
    """
    match = _EVENT_ID.fullmatch(last_event_id)
    if match is None:
        raise RequestRefused(400, "Last-Event-ID must be the id of an event, unchanged.", "invalid_event_id")
    return StreamPosition(match["run"], int(match["number"]), int(match["characters"]))


class ThreadEvents:
    """Sends the events of an answer to the clients of its run."""

    def __init__(self, run: ThreadRun, *, expose_tool_details: bool) -> None:
        self._run = run
        self._expose_tool_details = expose_tool_details
        self._finished_text = ""
        """Text of the completed model calls."""
        self._current_text = ""
        """Text of the current model call, with the separator before it."""

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return self._finished_text + self._current_text

    @property
    def unfinished_text(self) -> str:
        """The text of the model call in progress."""
        return self._current_text

    def on_run_event(self, event: RunEvent) -> None:
        """Send the event of an agent, if it is of interest to the user."""
        match event:
            case TextDelta(text=text):
                self._send_text(text)
            case ToolCalled(call=call):
                details = {"arguments": call.arguments} if self._expose_tool_details else {}
                self._send("tool", {"id": call.id, "name": call.name, "status": "running", **details})
            case ToolAnswered(call=call, content=content, success=success):
                details = {"result": content} if self._expose_tool_details else {}
                status = "ok" if success else "error"
                self._send("tool", {"id": call.id, "name": call.name, "status": status, **details})
            case HistoryCompacted():
                self.send_notice("compacted", text=event.notice)
            case AnswerRestarted():
                self._current_text = ""
                self.send_notice("restarted", text=self._finished_text)
            case ModelAnswered():
                self._finished_text, self._current_text = self.text, ""

    def send_notice(self, kind: str, **fields: Any) -> None:
        """Send a `notice` event, for example about a compaction."""
        self._send("notice", {"notice": kind, **fields})

    def send_stored_text(self, text: str, received: int = 0) -> None:
        """Send the text of completed model calls, without the characters that the client has received."""
        self._finished_text = text[:received]
        if text[received:]:
            self._send_text(text[received:], separator="")
        self._finished_text, self._current_text = self.text, ""

    def finish(self, result: Mapping[str, Any]) -> None:
        """Send the `done` event."""
        self._run.result = dict(result)
        self._send("done", self._run.result)

    def fail(self, failure: Failure) -> None:
        """Send the `error` event."""
        self._run.sent_failure = failure
        self._send("error", failure.event())

    def _send(self, event: str, data: Mapping[str, Any]) -> None:
        number = len(self._run.events) + 1
        self._run.send(sse(dict(data), event=event, event_id=f"{self._run.id}:{number}:{len(self.text)}"))

    def _send_text(self, text: str, separator: str = TEXT_SEPARATOR) -> None:
        delta = separator + text if self._finished_text and not self._current_text else text
        self._current_text += delta
        self._send("message", {"delta": delta})
