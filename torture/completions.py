"""A client of `/v1/chat/completions`: it sends its whole history, and runs its tools itself."""

import itertools
import json
from functools import partial
from typing import Any

from torture.client import Attempt, RetryingClient, RetryLater, require_success, server_events
from torture.client_history import ClientHistory, Message

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]
PATH = "/v1/chat/completions"


class CompletionClient(RetryingClient):
    """Streams every other turn."""

    def start_conversation(self, history: ClientHistory) -> None:
        history.conversation = history.name

    def run_turn(self, history: ClientHistory, turn: int) -> None:
        history.add({"role": "user", "content": f"question {turn} of {history.name}"})
        for step in itertools.count():
            is_streamed = turn % 2 == 0
            body = {"model": "scripted", "messages": list(history.messages), "stream": is_streamed, "tools": TOOLS}
            send = partial(_send, history.conversation, body)
            answer = self.request(f"{history.name}-{turn}-{step}", send)
            history.add_answer(answer)
            if not answer.get("tool_calls"):
                return
            for call in answer["tool_calls"]:
                history.add({"role": "tool", "tool_call_id": call["id"], "content": f"fact {turn}"})


def _send(conversation: str, body: dict[str, Any], attempt: Attempt) -> Message:
    attempt.headers["X-Conversation-Id"] = conversation
    if not body["stream"]:
        message: Message = attempt.post(PATH, body).json()["choices"][0]["message"]
        return message
    text: list[str] = []
    calls: dict[int, Message] = {}
    with attempt.http.stream("POST", f"{attempt.url}{PATH}", json=body, headers=attempt.headers) as response:
        for _, data in server_events(require_success(response)):
            if data == "[DONE]":
                answer: Message = {"role": "assistant", "content": "".join(text) or None}
                return answer if not calls else {**answer, "tool_calls": list(calls.values())}
            _add_chunk(json.loads(data), text, calls)
    raise RetryLater("cut off")


def _add_chunk(chunk: Message, text: list[str], calls: dict[int, Message]) -> None:
    if "error" in chunk:
        raise RetryLater(f"in the stream: {chunk['error']['code']}")
    for choice in chunk["choices"]:
        text.append(choice["delta"].get("content") or "")
        for piece in choice["delta"].get("tool_calls") or ():
            empty = {"id": piece.get("id"), "type": "function", "function": {"name": "", "arguments": ""}}
            call = calls.setdefault(piece["index"], empty)
            for part in ("name", "arguments"):
                call["function"][part] += piece["function"].get(part) or ""
