"""An answer of a thread as server-sent events: what the model says, the tools it uses, and how it ends.

The id of an event is `<run>:<number>:<characters>`: which answer, which event of it, and how much of the text stood by then.
So whoever comes back gets the events that it missed; and from a server that knows only the record, the rest of the text.
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

GAP: Final = "\n\n"
"""Stands between what the model says before it uses tools and what it says after."""
_ID: Final = re.compile(r"(?P<run>[A-Za-z0-9_]{1,120}):(?P<number>\d{1,9}):(?P<characters>\d{1,12})")


@dataclass(eq=False, slots=True)
class ThreadRun(Run):
    """An answer in a thread."""

    headers: dict[str, str] = field(default_factory=dict)
    """What the client is told before the first event."""
    result: dict[str, Any] | None = None
    """What `done` says."""
    refusal: Failure | None = None
    """What `error` says."""

    @property
    def interruption(self) -> RequestRefused:
        return RequestRefused(503, "The answer was stopped before its end. Ask again.", "run_cancelled")


@dataclass(frozen=True, slots=True)
class Place:
    """How far somebody has heard an answer."""

    run: str
    number: int = 0
    characters: int = 0


def place_in(last_event_id: str) -> Place:
    """The place that a client came to.

    Raises:
        RequestRefused: it is none of ours.
    """
    found = _ID.fullmatch(last_event_id)
    if found is None:
        raise RequestRefused(400, "Last-Event-ID must be the id of an event, as it came.", "invalid_event_id")
    return Place(found["run"], int(found["number"]), int(found["characters"]))


class Telling:
    """Says what happens in an answer to everybody who listens to its run."""

    def __init__(self, run: ThreadRun, *, expose_tool_details: bool) -> None:
        self._run = run
        self._details = expose_tool_details
        self._said = ""
        """The words of the calls that are over."""
        self._saying = ""
        """The words of the one that is being answered, with the gap before them."""

    @property
    def text(self) -> str:
        """All that the model has said in this answer."""
        return self._said + self._saying

    def hear(self, event: RunEvent) -> None:
        """Tell what an agent does, as far as it is for the user."""
        match event:
            case TextDelta(text=text):
                self._say(text)
            case ToolCalled(call=call):
                details = {"arguments": call.arguments} if self._details else {}
                self.tell("tool", {"id": call.id, "name": call.name, "status": "running", **details})
            case ToolAnswered(call=call, content=content, success=success):
                details = {"result": content} if self._details else {}
                status = "ok" if success else "error"
                self.tell("tool", {"id": call.id, "name": call.name, "status": status, **details})
            case HistoryCompacted():
                self.notice("compacted", text=event.notice)
            case AnswerRestarted():
                self._saying = ""
                self.notice("restarted", text=self._said)
            case ModelAnswered():
                self._said, self._saying = self.text, ""

    def notice(self, kind: str, **facts: Any) -> None:
        """Tell what a user may want to know of."""
        self.tell("notice", {"notice": kind, **facts})

    def whole(self, text: str, heard: int = 0) -> None:
        """Tell an answer that is over, from a character on."""
        self._said = text[:heard]
        if text[heard:]:
            self._say(text[heard:], gap="")

    def done(self, result: Mapping[str, Any]) -> None:
        """Tell the end."""
        self._run.result = dict(result)
        self.tell("done", self._run.result)

    def fail(self, failure: Failure) -> None:
        """Tell that there is no answer."""
        self._run.refusal = failure
        self.tell("error", failure.body())

    def tell(self, event: str, data: Mapping[str, Any]) -> None:
        """Tell anything."""
        number = len(self._run.events) + 1
        self._run.say(sse(dict(data), event=event, number=f"{self._run.id}:{number}:{len(self.text)}"))

    def _say(self, text: str, gap: str = GAP) -> None:
        delta = gap + text if self._said and not self._saying else text
        self._saying += delta
        self.tell("message", {"delta": delta})
