"""A client of threads: it says one thing at a time, and the server runs the tools."""

import json
from dataclasses import dataclass
from typing import Any

from torture.story import Story
from torture.talker import Line, NotYet, Talker, events, required


def look_up(what: str) -> str:
    """Look something up. The server's tool, by its configuration."""
    return f"fact {what.split()[1]}"


class ThreadTalker(Talker):
    """Every answer is streamed; a stream that was cut is heard on from the last event."""

    def begin(self, story: Story) -> None:
        body = {"metadata": {"of": story.name}}
        story.conversation = self.ask(story.name, lambda line: line.post("/threads", body).json()["id"])

    def turn(self, story: Story, turn: int) -> None:
        question = f"question {turn} of {story.name}"
        story.say({"role": "user", "content": question})
        asked = Asked(f"/threads/{story.conversation}", {"text": question, "model": "scripted"}, posts=turn % 2 == 0)
        done = self.ask(f"{story.name}-{turn}", asked.answer)
        for used in done["tools"]:
            story.say(
                {"role": "assistant", "content": None, "tool_calls": [{"id": used["id"]}]},
                {"role": "tool", "content": used["result"], "tool_call_id": used["id"]},
            )
        story.hear({"role": "assistant", "content": done["text"]})


@dataclass
class Asked:
    """One message, and how much of the answer to it was heard so far."""

    path: str
    body: dict[str, Any]
    posts: bool
    """Whether it comes back with the request itself, or to the events of the run: both are offered."""
    _last: str = ""
    """The id of the last event that was heard."""
    _text: str = ""

    def answer(self, line: Line) -> dict[str, Any]:
        """What `done` says: asked for, or heard on from where the stream was cut."""
        headers = {**line.headers, "Last-Event-ID": self._last} if self._last else line.headers
        if self._last and not self.posts:
            run = self._last.partition(":")[0]
            stream = line.http.stream("GET", f"{line.url}{self.path}/runs/{run}/events", headers=headers)
        else:
            stream = line.http.stream("POST", f"{line.url}{self.path}/messages", json=self.body, headers=headers)
        with stream as given:
            for fields, data in events(required(given)):
                done = self._hear(fields["event"], json.loads(data))
                if done is not None:
                    return done
                self._last = fields["id"]
        raise NotYet("cut off")

    def _hear(self, event: str, data: dict[str, Any]) -> dict[str, Any] | None:
        if event == "error":
            self._last, self._text = "", ""
            raise NotYet(f"in the stream: {data['error']['code']}")
        if event == "message":
            self._text += data["delta"]
        elif data.get("notice") == "restarted":
            self._text = data["text"]
        elif event == "done":
            assert data["text"] == self._text, f"{self._text!r} was heard of {data['text']!r}"
            assert data["history"] == "recorded", data["history"]
            return data
        return None
