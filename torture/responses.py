"""Clients of `/v1/responses`: one names its conversation, the other the response that it goes on from."""

import itertools
import json
from dataclasses import dataclass, field
from typing import Any

from torture.story import Message, Story
from torture.talker import Line, NotYet, Talker, events, required

TOOLS = [{"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}]
PATH = "/v1/responses"


@dataclass
class ResponseTalker(Talker):
    """Every other turn is streamed. What it sends is what is new; where to go on is said by one of two names."""

    chained: bool = False
    """Whether it names the response before, and no conversation."""
    _last: str | None = None

    def begin(self, story: Story) -> None:
        self._last = None
        if not self.chained:
            body = {"metadata": {"of": story.name}}
            story.conversation = self.ask(story.name, lambda line: line.post("/v1/conversations", body).json()["id"])

    def turn(self, story: Story, turn: int) -> None:
        question = f"question {turn} of {story.name}"
        new: list[Message] = [{"role": "user", "content": question}]
        story.say({"role": "user", "content": question})
        for step in itertools.count():
            asked = Asked(self._body(story, new, streams=turn % 2 == 0))
            made = self.ask(f"{story.name}-{turn}-{step}", asked.answer)
            self._last, story.conversation = made["id"], asked.conversation
            said = message_of(made["output"])
            story.hear(said)
            calls = said.get("tool_calls", ())
            if not calls:
                return
            new = [{"type": "function_call_output", "call_id": each["id"], "output": f"fact {turn}"} for each in calls]
            story.say(*({"role": "tool", "tool_call_id": each["id"], "content": f"fact {turn}"} for each in calls))

    def _body(self, story: Story, new: list[Message], *, streams: bool) -> dict[str, Any]:
        body = {"model": "scripted", "input": new, "stream": streams, "tools": TOOLS, "store": True}
        if not self.chained:
            return {**body, "conversation": story.conversation}
        return body if self._last is None else {**body, "previous_response_id": self._last}


@dataclass
class Asked:
    """One request, and how much of its answer was heard so far."""

    body: dict[str, Any]
    conversation: str = ""
    _response: str = ""
    _number: int = -1
    """The number of the last event that was heard."""
    _text: list[str] = field(default_factory=list)

    def answer(self, line: Line) -> dict[str, Any]:
        """The response: asked for, or heard on from where the stream was cut."""
        if not self.body["stream"]:
            answer = line.post(PATH, self.body)
            self.conversation = answer.headers["x-conversation-id"]
            return _completed(answer.json())
        if self._response:
            path = f"{PATH}/{self._response}?stream=true&starting_after={self._number}"
            stream = line.http.stream("GET", f"{line.url}{path}")
        else:
            stream = line.http.stream("POST", f"{line.url}{PATH}", json=self.body, headers=line.headers)
        with stream as given:
            self.conversation = required(given).headers["x-conversation-id"]
            for _, data in events(given):
                ended = None if data == "[DONE]" else self._hear(json.loads(data))
                if ended is not None:
                    return ended
        raise NotYet("cut off")

    def _hear(self, event: dict[str, Any]) -> dict[str, Any] | None:
        kind, number = event["type"], event["sequence_number"]
        if kind in {"error", "response.failed"}:
            if kind == "error":
                return None
            self._response, self._number, self._text = "", -1, []
            raise NotYet(f"in the stream: {event['response']['status']}")
        assert number == self._number + 1, f"event {number} came after {self._number}"
        self._number = number
        if kind == "response.created":
            self._response = event["response"]["id"]
        elif kind == "response.output_text.delta":
            self._text.append(event["delta"])
        elif kind == "response.completed":
            made = _completed(event["response"])
            said = message_of(made["output"])["content"] or ""
            assert said == "".join(self._text), f"{''.join(self._text)!r} was heard of {said!r}"
            return made
        return None


def _completed(made: dict[str, Any]) -> dict[str, Any]:
    assert made["status"] == "completed", f"a response that is {made['status']}: {made['error']}"
    return made


def message_of(output: list[dict[str, Any]]) -> Message:
    """The items of a response as one message."""
    parts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
    calls = [{"id": item["call_id"]} for item in output if item["type"] == "function_call"]
    said: Message = {"role": "assistant", "content": "".join(parts) or None}
    return {**said, "tool_calls": calls} if calls else said
