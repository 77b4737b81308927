"""A client of threads: it sends one message at a time, and the server runs the tools."""

import json
from dataclasses import dataclass
from typing import Any

from torture.client import Attempt, RetryingClient, RetryLater, require_success, server_events
from torture.client_history import ClientHistory


def look_up(what: str) -> str:
    """Look something up. The server runs this tool: see `replica.CONFIG`."""
    return f"fact {what.split()[1]}"


class ThreadClient(RetryingClient):
    """Streams every answer, and resumes a cut stream after the last event received."""

    def start_conversation(self, history: ClientHistory) -> None:
        body = {"metadata": {"of": history.name}}
        history.conversation = self.request(history.name, lambda attempt: attempt.post("/threads", body).json()["id"])

    def run_turn(self, history: ClientHistory, turn: int) -> None:
        question = f"question {turn} of {history.name}"
        history.add({"role": "user", "content": question})
        body = {"text": question, "model": "scripted"}
        request = ThreadRequest(f"/threads/{history.conversation}", body, resumes_with_post=turn % 2 == 0)
        done = self.request(f"{history.name}-{turn}", request.send)
        for tool_use in done["tools"]:
            history.add(
                {"role": "assistant", "content": None, "tool_calls": [{"id": tool_use["id"]}]},
                {"role": "tool", "content": tool_use["result"], "tool_call_id": tool_use["id"]},
            )
        history.add_answer({"role": "assistant", "content": done["text"]})


@dataclass
class ThreadRequest:
    """One message, and the part of its answer that was received so far."""

    path: str
    body: dict[str, Any]
    resumes_with_post: bool
    """Whether a cut stream is resumed by the same request or by the events of the run; the API has both."""
    _last_event_id: str = ""
    _text: str = ""

    def send(self, attempt: Attempt) -> dict[str, Any]:
        """Send the message, or resume its stream where it was cut; return the data of the event `done`."""
        headers = attempt.headers
        if self._last_event_id:
            headers = {**headers, "Last-Event-ID": self._last_event_id}
        if self._last_event_id and not self.resumes_with_post:
            run = self._last_event_id.partition(":")[0]
            stream = attempt.http.stream("GET", f"{attempt.url}{self.path}/runs/{run}/events", headers=headers)
        else:
            url = f"{attempt.url}{self.path}/messages"
            stream = attempt.http.stream("POST", url, json=self.body, headers=headers)
        with stream as response:
            for fields, data in server_events(require_success(response)):
                done = self._receive(fields["event"], json.loads(data))
                if done is not None:
                    return done
                self._last_event_id = fields["id"]
        raise RetryLater("cut off")

    def _receive(self, event: str, data: dict[str, Any]) -> dict[str, Any] | None:
        """Check an event; return its data if it is the last."""
        if event == "error":
            self._last_event_id, self._text = "", ""
            raise RetryLater(f"in the stream: {data['error']['code']}")
        if event == "message":
            self._text += data["delta"]
        elif data.get("notice") == "restarted":
            self._text = data["text"]
        elif event == "done":
            assert data["text"] == self._text, f"{self._text!r} was streamed of {data['text']!r}"
            assert data["history"] == "recorded", data["history"]
            return data
        return None
