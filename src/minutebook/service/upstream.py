"""The provider behind the service: any server that speaks OpenAI's chat completions."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2

from minutebook.agent.failure import from_status, from_transport, told
from minutebook.agent.openai import OpenAIAdapter
from minutebook.errors import ProviderFailed
from minutebook.service.wire import dumped

_NAME: Final = "upstream"


class Upstream:
    """Asks the provider. It holds the server's key; a caller's own key is used for one request and forgotten."""

    def __init__(self, url: str, *, key: str | None = None, timeout_seconds: float = 600.0) -> None:
        self.url = url.rstrip("/")
        self._key = key
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(timeout_seconds, connect=10.0),
            limits=httpx2.Limits(max_connections=1_000, max_keepalive_connections=200),
            trust_env=False,
        )

    async def ask(self, body: Mapping[str, Any], *, authorization: str | None = None) -> dict[str, Any]:
        """A chat completion, whole.

        Raises:
            ProviderFailed: there is none.
        """
        try:
            answer = await self._client.post(
                f"{self.url}/chat/completions", content=dumped(body), headers=self._headers(authorization)
            )
        except httpx2.TransportError as error:
            raise from_transport(_NAME, error) from error
        _require_success(answer, answer.content)
        return _document(answer.content)

    @asynccontextmanager
    async def stream(
        self, body: Mapping[str, Any], *, authorization: str | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The data of a streamed completion's events, without the last one, `[DONE]`.

        Raises:
            ProviderFailed: it was refused, or broke off.
        """
        try:
            async with self._client.stream(
                "POST", f"{self.url}/chat/completions", content=dumped(body), headers=self._headers(authorization)
            ) as answer:
                if answer.status_code >= 400:
                    _require_success(answer, await answer.aread())
                yield _events(answer)
        except httpx2.TransportError as error:
            raise from_transport(_NAME, error) from error

    async def models(self, *, authorization: str | None = None) -> dict[str, Any]:
        """What the provider lists as its models.

        Raises:
            ProviderFailed: it lists none.
        """
        try:
            answer = await self._client.get(f"{self.url}/models", headers=self._headers(authorization))
        except httpx2.TransportError as error:
            raise from_transport(_NAME, error) from error
        _require_success(answer, answer.content)
        return _document(answer.content)

    def adapter(self, model: str, **options: Any) -> OpenAIAdapter:
        """An adapter for agents that ask the same provider."""
        return OpenAIAdapter(model, base_url=self.url, api_key=self._key or "none", **options)

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()

    def _headers(self, authorization: str | None) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if authorization is not None:
            return headers | {"authorization": authorization}
        return headers if self._key is None else headers | {"authorization": f"Bearer {self._key}"}


async def _events(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """The data of each event; a comment or an empty event is none."""
    rest = b""
    async for piece in answer.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                yield data
    raise ProviderFailed(_NAME, None, "the stream ended before the answer did", retryable=True)


def _require_success(answer: httpx2.Response, content: bytes) -> None:
    if answer.status_code < 400:
        return
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    inner = body.get("error") if isinstance(body, Mapping) else None
    code = inner.get("code") if isinstance(inner, Mapping) and isinstance(inner.get("code"), str) else None
    raise from_status(
        _NAME, answer.status_code, told(body, "it gave no reason"), code=code, headers=dict(answer.headers)
    )


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ProviderFailed(_NAME, 200, "the answer is not a JSON object", retryable=True)
    return document
