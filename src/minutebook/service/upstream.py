"""The provider behind the service: any server that speaks OpenAI's chat completions.

The provider's answer as it comes, put together for the record; its end is held back until it is stored.

Agents that ask the service's own provider, over the connections that all requests share.

What is sent may hold anything that a record may hold, half a surrogate pair too, which the official client cannot say.
"""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import aiohttp

from minutebook.agent.messages import ModelReply, ModelRequest, OnDelta, TextDelta, Usage
from minutebook.agent.providers.openai import Assembly, OpenAIAdapter, usage_of
from minutebook.agent.retry import from_status, from_transport, told
from minutebook.agent.telemetry import Telemetry
from minutebook.errors import ProviderFailed
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import dumped


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
    inner = body.get("error") if isinstance(body, Mapping) else None
    code = inner.get("code") if isinstance(inner, Mapping) and isinstance(inner.get("code"), str) else None
    raise from_status(_NAME, answer.status, told(body, "it gave no reason"), code=code, headers=dict(answer.headers))


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ProviderFailed(_NAME, 200, "the answer is not a JSON object", retryable=True)
    return document


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
