"""Clients of `/v1/responses`: they name the conversation or the previous response, wait in the background, or store nothing."""

import itertools
import json
from dataclasses import dataclass, field
from typing import Any

from torture.client import Attempt, RetryingClient, RetryLater, require_success, server_events
from torture.client_history import ClientHistory, Message

TOOLS = [{"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}]
PATH = "/v1/responses"
POLL_SECONDS = 0.02
"""Time between two questions for a background response."""


@dataclass
class ResponseClient(RetryingClient):
    """Streams every other turn, and sends only new messages."""

    uses_previous: bool = False
    """Whether it sends `previous_response_id` instead of a conversation."""
    in_background: bool = False
    """Whether it creates background responses, and asks for them until they have ended."""
    stores: bool = True
    """Whether responses are stored. If not, it sends all items with every request."""
    _previous_id: str | None = None
    _items: list[Message] = field(default_factory=list)
    """All items of a conversation that is not stored."""

    def start_conversation(self, history: ClientHistory) -> None:
        self._previous_id, self._items, history.is_stored = None, [], self.stores
        if not self.uses_previous and self.stores:
            body = {"metadata": {"of": history.name}}
            history.conversation = self.request(
                history.name, lambda attempt: attempt.post("/v1/conversations", body).json()["id"]
            )

    def run_turn(self, history: ClientHistory, turn: int) -> None:
        question = f"question {turn} of {history.name}"
        new_items: list[Message] = [{"role": "user", "content": question}]
        history.add({"role": "user", "content": question})
        for step in itertools.count():
            request = ResponseRequest(self._body(history, new_items, is_streamed=turn % 2 == 0))
            response = self.request(f"{history.name}-{turn}-{step}", request.send)
            self._previous_id, history.conversation = response["id"], request.conversation
            self._items += [*new_items, *response["output"]]
            answer = message_of(response["output"])
            history.add_answer(answer)
            call_ids = [call["id"] for call in answer.get("tool_calls", ())]
            if not call_ids:
                return
            result = f"fact {turn}"
            new_items = [{"type": "function_call_output", "call_id": call_id, "output": result} for call_id in call_ids]
            history.add(*({"role": "tool", "tool_call_id": call_id, "content": result} for call_id in call_ids))

    def _body(self, history: ClientHistory, new_items: list[Message], *, is_streamed: bool) -> dict[str, Any]:
        body = {"model": "scripted", "input": new_items, "stream": is_streamed, "tools": TOOLS, "store": self.stores}
        if not self.stores:
            return {**body, "input": [*self._items, *new_items]}
        body["background"] = self.in_background
        if not self.uses_previous:
            return {**body, "conversation": history.conversation}
        return body if self._previous_id is None else {**body, "previous_response_id": self._previous_id}


@dataclass
class ResponseRequest:
    """One request, and the part of its answer that was received so far."""

    body: dict[str, Any]
    conversation: str = ""
    _response_id: str = ""
    _last_number: int = -1
    """The sequence number of the last event received."""
    _text: list[str] = field(default_factory=list)

    def send(self, attempt: Attempt) -> dict[str, Any]:
        """Send the request, or resume its stream where it was cut; return the response."""
        if not self.body["stream"]:
            return self._send_whole(attempt)
        if not self.body["store"]:
            self._restart()
        if self._response_id:
            path = f"{PATH}/{self._response_id}?stream=true&starting_after={self._last_number}"
            stream = attempt.http.stream("GET", f"{attempt.url}{path}")
        else:
            stream = attempt.http.stream("POST", f"{attempt.url}{PATH}", json=self.body, headers=attempt.headers)
        with stream as streamed:
            self.conversation = require_success(streamed).headers.get("x-conversation-id", "")
            for _, data in server_events(streamed):
                response = None if data == "[DONE]" else self._receive(json.loads(data))
                if response is not None:
                    self.conversation = self.conversation or self._find_conversation(attempt)
                    return response
        raise RetryLater("cut off")

    def _find_conversation(self, attempt: Attempt) -> str:
        """The conversation of a stored response whose stream was opened before it was known."""
        if not self.body["store"]:
            return ""
        stored = require_success(attempt.http.get(f"{attempt.url}{PATH}/{self._response_id}"))
        return str(stored.headers["x-conversation-id"])

    def _send_whole(self, attempt: Attempt) -> dict[str, Any]:
        """Send the request, or ask for the background response that an earlier attempt has created."""
        if self._response_id:
            whole = require_success(attempt.http.get(f"{attempt.url}{PATH}/{self._response_id}"))
        else:
            whole = attempt.post(PATH, self.body)
        self.conversation = whole.headers.get("x-conversation-id", "")
        response: dict[str, Any] = whole.json()
        if not self.body.get("background"):
            return _require_completed(response)
        if response["status"] in {"queued", "in_progress"}:
            self._response_id = response["id"]
            raise RetryLater("in the background", POLL_SECONDS)
        if response["status"] == "failed":
            self._restart()
            raise RetryLater(f"in the background: {response['error']['code']}")
        return _require_completed(response)

    def _restart(self) -> None:
        """Forget what was received: the next attempt creates a new response."""
        self._response_id, self._last_number, self._text = "", -1, []

    def _receive(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """Check an event; return the response if this is its end."""
        kind, number = event["type"], event["sequence_number"]
        if kind in {"error", "response.failed"}:
            if kind == "error":
                return None
            self._restart()
            raise RetryLater(f"in the stream: {event['response']['status']}")
        assert number == self._last_number + 1, f"event {number} came after {self._last_number}"
        self._last_number = number
        if kind == "response.created":
            self._response_id = event["response"]["id"]
        elif kind == "response.output_text.delta":
            self._text.append(event["delta"])
        elif kind == "response.completed":
            response = _require_completed(event["response"])
            text, streamed_text = message_of(response["output"])["content"] or "", "".join(self._text)
            assert text == streamed_text, f"{streamed_text!r} was streamed of {text!r}"
            return response
        return None


def _require_completed(response: dict[str, Any]) -> dict[str, Any]:
    assert response["status"] == "completed", f"response status {response['status']}: {response['error']}"
    return response


def message_of(output: list[dict[str, Any]]) -> Message:
    """The items of a response as one message."""
    parts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
    calls = [{"id": item["call_id"]} for item in output if item["type"] == "function_call"]
    message: Message = {"role": "assistant", "content": "".join(parts) or None}
    return {**message, "tool_calls": calls} if calls else message
