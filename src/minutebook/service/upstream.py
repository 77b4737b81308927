"""The provider behind the service: any server that speaks OpenAI's chat completions.

Agents that ask the service's own provider, over the connections that all requests share.

What is sent may hold anything that a record may hold, half a surrogate pair too, which the official client cannot say.
"""

import asyncio
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, ClassVar, Final, Unpack

import aiohttp

from minutebook.agent.messages import ModelRequest
from minutebook.agent.providers.client import ClientOptions
from minutebook.agent.providers.openai import OpenAIAdapter
from minutebook.agent.retry import error_reason, from_status, from_transport
from minutebook.errors import ProviderFailed
from minutebook.wire.chat import dumped


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


_NAME: Final = "upstream"
_BROKEN: Final = (aiohttp.ClientError, OSError, TimeoutError)
_END_SECONDS: Final = 0.05
_LARGE: Final = 1 << 20
"""Bodies above this size are handed to the client as a file: it sends those piece by piece, and others go on meanwhile."""


class Upstream:
    """Asks the provider. It holds the server's key; a caller's own key is used for one request and forgotten."""

    def __init__(self, url: str, *, key: str | None = None, timeout_seconds: float = 600.0) -> None:
        self.url = url.rstrip("/")
        self._key = key
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=timeout_seconds)
        self._made: dict[bool, aiohttp.ClientSession] = {}

    async def ask(self, body: Mapping[str, Any], *, authorization: str | None = None) -> dict[str, Any]:
        """A chat completion, whole.

        Raises:
            ProviderFailed: there is none.
        """
        with _transport():
            async with await self._asked(body, authorization) as answer:
                content = await answer.read()
        _require_success(answer, content)
        return _document(content)

    @asynccontextmanager
    async def stream(
        self, body: Mapping[str, Any], *, authorization: str | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The data of a streamed completion's events, without the last one, `[DONE]`.

        Raises:
            ProviderFailed: it was refused, or broke off.
        """
        with _transport():
            answer = await self._asked(body, authorization)
        try:
            if answer.status >= 400:
                with _transport():
                    content = await answer.read()
                _require_success(answer, content)
            yield _events(answer)
        finally:
            answer.close() if not answer.content.is_eof() else answer.release()

    async def models(self, *, authorization: str | None = None) -> dict[str, Any]:
        """What the provider lists as its models.

        Raises:
            ProviderFailed: it lists none.
        """
        with _transport():
            asked = self._client().get(
                f"{self.url}/models", headers=self._headers(authorization), allow_redirects=False
            )
            async with asked as answer:
                content = await answer.read()
        _require_success(answer, content)
        return _document(content)

    async def _asked(self, body: Mapping[str, Any], authorization: str | None) -> aiohttp.ClientResponse:
        """Ask, and once more on a new line where one was closed before a word came back.

        A provider closes lines that were idle for some seconds, and the next request may be on its way by then: such a
        line says nothing about the request, and others that were as idle are no better. The official clients ask again
        then, too.
        """
        content = dumped(body)
        for new_line in (False, True):
            try:
                return await self._client(new_line=new_line).post(
                    f"{self.url}/chat/completions",
                    data=content if len(content) < _LARGE else io.BytesIO(content),
                    headers=self._headers(authorization),
                    allow_redirects=False,
                )
            except aiohttp.ClientConnectorError:
                raise  # there never was a line
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if new_line:
                    raise
        raise AssertionError("the last try returns or raises")

    def _client(self, *, new_line: bool = False) -> aiohttp.ClientSession:
        """Made by the first who asks: it belongs to their loop. On a `new_line`, which is hung up after the answer."""
        made = self._made.get(new_line)
        if made is None:
            keep: dict[str, Any] = {"force_close": True} if new_line else {"keepalive_timeout": 30.0}
            made = self._made[new_line] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=1_000, **keep),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=self._timeout,
            )
        return made

    def adapter(self, model: str, **options: Any) -> OpenAIAdapter:
        """An adapter for agents that ask the same provider."""
        return OpenAIAdapter(model, base_url=self.url, api_key=self._key or "none", **options)

    async def close(self) -> None:
        """Hang up."""
        for made in self._made.values():
            await made.close()

    def _headers(self, authorization: str | None) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if authorization is not None:
            return headers | {"authorization": authorization}
        return headers if self._key is None else headers | {"authorization": f"Bearer {self._key}"}


@contextmanager
def _transport() -> Iterator[None]:
    """Let no error of the connection out but as ours."""
    try:
        yield
    except _BROKEN as error:
        raise from_transport(_NAME, error) from error


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of each event; a comment or an empty event is none."""
    rest = b""
    while True:
        with _transport():
            piece = await answer.content.readany()
        if not piece:
            raise ProviderFailed(_NAME, None, "the stream ended before the answer did", retryable=True)
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                data = line[5:].strip()
                if data == b"[DONE]":
                    await _read_out(answer)
                    return
                yield data


async def _read_out(answer: aiohttp.ClientResponse) -> None:
    """The end of the stream follows at once; when it is read the connection can serve the next."""
    with suppress(*_BROKEN):
        async with asyncio.timeout(_END_SECONDS):
            while await answer.content.readany():
                pass


def _require_success(answer: aiohttp.ClientResponse, content: bytes) -> None:
    if answer.status < 400:
        return
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    problem, code = error_reason(body)
    raise from_status(_NAME, answer.status, problem, code=code, headers=dict(answer.headers))


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ProviderFailed(_NAME, 200, "the answer is not a JSON object", retryable=True)
    return document


class UpstreamAdapter(OpenAIAdapter):
    """Sends over the service's connections. A caller's own key is used for this adapter's requests alone."""

    _answered_by: ClassVar[str] = _NAME

    def __init__(
        self, upstream: Upstream, model: str, *, authorization: str | None, **shared: Unpack[ClientOptions]
    ) -> None:
        super().__init__(model, **shared)
        self._upstream, self._authorization = upstream, authorization

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        body = super()._arguments(request)
        options: Mapping[str, Any] = body.pop("extra_body")
        return {**body, **options}

    async def _complete(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._upstream.ask(arguments, authorization=self._authorization)

    async def _chunks(self, arguments: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        async with self._upstream.stream(arguments, authorization=self._authorization) as events:
            async for _, chunk in pieces(events):
                yield chunk
