"""Agents that ask the service's own provider, over the connections that all requests share.

What is sent may hold anything that a record may hold, half a surrogate pair too, which the official client cannot say.
"""

from collections.abc import Mapping
from typing import Any, Final

from minutebook.agent.openai import OpenAIAdapter
from minutebook.agent.request import ModelReply, ModelRequest, OnDelta, TextDelta
from minutebook.agent.telemetry import Telemetry
from minutebook.errors import ProviderFailed
from minutebook.service.answers import Answer, pieces
from minutebook.service.upstream import Upstream
from minutebook.tokens import TokenCounter

_WORDS: Final = ("content", "refusal")


class UpstreamAdapter(OpenAIAdapter):
    """Asks as the service asks. A caller's own key is used for this adapter's requests, and kept nowhere else."""

    def __init__(
        self,
        upstream: Upstream,
        model: str,
        *,
        options: Mapping[str, Any],
        authorization: str | None,
        counter: TokenCounter,
        telemetry: Telemetry,
    ) -> None:
        super().__init__(model, api_key="none", options=options, counter=counter, telemetry=telemetry)
        self._upstream = upstream
        self._authorization = authorization

    async def ask(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelReply:
        arguments = self._arguments(request)
        body = arguments | arguments.pop("extra_body")
        answer = Answer()
        if on_delta is None:
            answer.take_whole(await self._upstream.ask(body, authorization=self._authorization))
        else:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
            async with self._upstream.stream(body, authorization=self._authorization) as events:
                async for _, chunk in pieces(events):
                    answer.take(chunk)
                    _tell(chunk, on_delta)
        if answer.finish is None:
            raise ProviderFailed(self.name, None, "the stream ended before the answer did", retryable=True)
        head = answer.head
        return ModelReply(answer.message, answer.usage, answer.finish, head.get("model"), head.get("id"))


def _tell(chunk: Mapping[str, Any], on_delta: OnDelta) -> None:
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        for word in _WORDS:
            if choice.get("index", 0) == 0 and isinstance(delta.get(word), str) and delta[word]:
                on_delta(TextDelta(delta[word]))
