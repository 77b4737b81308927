"""The provider's answer as it comes, put together for the record; its end is held back until it is stored."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from minutebook.agent.assembly import Assembly
from minutebook.agent.failure import from_status, told
from minutebook.agent.openai import usage_of
from minutebook.agent.usage import Usage
from minutebook.errors import ProviderFailed


class Answer:
    """What the provider has said so far. The record goes on with its first choice; others are kept in the minutes."""

    def __init__(self) -> None:
        self._assembly = Assembly()
        self._others: dict[int, Assembly] = {}
        self._message: dict[str, Any] | None = None
        self.finish: str | None = None
        self.reported: Mapping[str, Any] | None = None
        """The provider's usage, as it wrote it."""
        self.head: dict[str, Any] = {}
        """Its id, time and model."""

    @property
    def message(self) -> dict[str, Any]:
        return self._message if self._message is not None else self._assembly.message()

    @property
    def has_words(self) -> bool:
        """Whether anything was said yet; that it is the assistant who speaks is not."""
        return not self._assembly.is_empty

    @property
    def usage(self) -> Usage:
        return usage_of(self.reported)

    def outcome(self) -> dict[str, Any]:
        """How it ended, for the request's minutes."""
        ended: dict[str, Any] = {"finish": self.finish, "usage": dict(self.reported) if self.reported else None}
        if self._others:
            ended["other_choices"] = [self._others[index].message() for index in sorted(self._others)]
        return ended

    def take_whole(self, completion: Mapping[str, Any]) -> None:
        """A completion that was not streamed.

        Raises:
            ProviderFailed: it has no answer in it.
        """
        choices = completion.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0].get("message"), dict):
            raise ProviderFailed("upstream", 200, "the answer has no choices", retryable=True)
        message = {key: value for key, value in choices[0]["message"].items() if value is not None}
        self._message = {"role": "assistant", "content": None if message.get("tool_calls") else "", **message}
        self.finish = choices[0].get("finish_reason") or "stop"
        for index, choice in enumerate(choices[1:], 1):
            self._others.setdefault(index, Assembly()).add(choice.get("message") or {})
        self.reported = completion.get("usage")
        self._take_head(completion)

    def take(self, chunk: Mapping[str, Any]) -> bool:
        """A piece of a streamed completion; whether its end has begun.

        Raises:
            ProviderFailed: the provider says that it cannot go on.
        """
        if "error" in chunk:
            error = chunk["error"] if isinstance(chunk["error"], Mapping) else {}
            code = error.get("code") if isinstance(error.get("code"), str) else None
            raise from_status("upstream", 500, told(chunk, "it gave no reason"), code=code)
        self._take_head(chunk)
        self.reported = chunk.get("usage") or self.reported
        for choice in chunk.get("choices") or ():
            index = choice.get("index", 0)
            assembly = self._assembly if index == 0 else self._others.setdefault(index, Assembly())
            assembly.add(choice.get("delta") or {})
            if index == 0:
                self.finish = choice.get("finish_reason") or self.finish
        return self.finish is not None

    def _take_head(self, said: Mapping[str, Any]) -> None:
        if not self.head:
            self.head = {key: said[key] for key in ("id", "created", "model") if said.get(key) is not None}


async def pieces(events: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, dict[str, Any]]]:
    """The events of a stream, as they are and as they are read.

    Raises:
        ProviderFailed: one is not JSON.
    """
    async for data in events:
        try:
            chunk = json.loads(data.decode("utf-8", "surrogatepass"))  # bytes would first be asked for their encoding
        except ValueError:
            chunk = None
        if not isinstance(chunk, dict):
            raise ProviderFailed("upstream", 200, "an event of the stream is not a JSON object", retryable=True)
        yield data, chunk
