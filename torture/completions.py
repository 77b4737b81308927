"""A client of `/v1/chat/completions`: it resends its history, and runs its tools itself."""

import itertools
import json
from functools import partial
from typing import Any

from torture.story import Message, Story
from torture.talker import Line, NotYet, Talker, events, required

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]


class CompletionTalker(Talker):
    """Every other turn is streamed."""

    def begin(self, story: Story) -> None:
        story.conversation = story.name

    def turn(self, story: Story, turn: int) -> None:
        story.say({"role": "user", "content": f"question {turn} of {story.name}"})
        for step in itertools.count():
            streams = turn % 2 == 0
            body = {"model": "scripted", "messages": list(story.told), "stream": streams, "tools": TOOLS}
            said = self.ask(f"{story.name}-{turn}-{step}", partial(_answer, story.conversation, body))
            story.hear(said)
            if not said.get("tool_calls"):
                return
            for each in said["tool_calls"]:
                story.say({"role": "tool", "tool_call_id": each["id"], "content": f"fact {turn}"})


def _answer(conversation: str, body: dict[str, Any], line: Line) -> Message:
    line.headers["X-Conversation-Id"] = conversation
    if not body["stream"]:
        message: Message = line.post("/v1/chat/completions", body).json()["choices"][0]["message"]
        return message
    text: list[str] = []
    calls: dict[int, Message] = {}
    with line.http.stream("POST", f"{line.url}/v1/chat/completions", json=body, headers=line.headers) as answer:
        for _, data in events(required(answer)):
            if data == "[DONE]":
                said: Message = {"role": "assistant", "content": "".join(text) or None}
                return said if not calls else {**said, "tool_calls": list(calls.values())}
            _take(json.loads(data), text, calls)
    raise NotYet("cut off")


def _take(chunk: Message, text: list[str], calls: dict[int, Message]) -> None:
    if "error" in chunk:
        raise NotYet(f"in the stream: {chunk['error']['code']}")
    for choice in chunk["choices"]:
        text.append(choice["delta"].get("content") or "")
        for piece in choice["delta"].get("tool_calls") or ():
            empty = {"id": piece.get("id"), "type": "function", "function": {"name": "", "arguments": ""}}
            known = calls.setdefault(piece["index"], empty)
            for part in ("name", "arguments"):
                known["function"][part] += piece["function"].get(part) or ""
