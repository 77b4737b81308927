"""The HTTP client for the provider behind the service: any server with OpenAI's chat completions API.

The official client is not used: it cannot encode lone surrogates, which a record may contain.
"""

import asyncio
import io
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, ClassVar, Final, NoReturn, Unpack
from urllib.parse import quote
from weakref import WeakSet

import aiohttp
from pydantic import BaseModel, ConfigDict, ValidationError

from minutebook.agent.messages import ModelRequest, OnDelta
from minutebook.agent.providers.client import ClientOptions
from minutebook.agent.providers.openai import CompletionAccumulator, OpenAIAdapter
from minutebook.agent.retry import MAX_REASON_CHARACTERS, error_from_status, error_from_transport, error_reason
from minutebook.conversation.record_cache import compute
from minutebook.errors import ContextOverflow, ProviderFailed, ProviderRefused, RequestRefused
from minutebook.service.http.json_codec import INLINE_BYTES, is_deeper, json_bytes


async def parse_chunks(events: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, dict[str, Any]]]:
    """Each event of a stream, as bytes and parsed.

    Raises:
        ContextOverflow: the first event is that error.
        ProviderFailed: an event is not a chunk of a completion.
    """
    is_first = True
    async for data in events:
        try:
            chunk = await compute(_parse_completion, data, is_large=len(data) > INLINE_BYTES)
        except ContextOverflow as overflow:
            if is_first:
                raise
            raise ProviderFailed(PROVIDER, 500, overflow.problem) from overflow  # a part of the answer was sent
        yield data, chunk
        is_first = False


PROVIDER: Final = "upstream"
"""Name of the provider in errors."""
_TRANSPORT_ERRORS: Final = (aiohttp.ClientError, OSError, TimeoutError)
_CONNECT_SECONDS: Final = 10.0
_END_SECONDS: Final = 0.05
"""How long to wait for the end of a stream after its last event."""
_MAX_DEPTH: Final = 64
"""Maximum nesting of a response."""
_PASSED_HEADERS: Final = re.compile(r"retry-after(-ms)?$|x-ratelimit-|ratelimit|x-should-retry$")
"""Headers of a provider's error that the client gets."""
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a provider's response, whole or streamed."""
_LARGE_BODY_BYTES: Final = 1 << 20
"""Larger bodies are passed as a file: aiohttp sends a file in chunks, and other requests run between them."""


class Upstream:
    """Sends requests to the provider, with the service's API key or the caller's `authorization`, which is not stored."""

    def __init__(self, url: str, *, key: str | None = None, timeout_seconds: float = 600.0) -> None:
        self.url = url.rstrip("/")
        self.max_answer_bytes = MAX_ANSWER_BYTES
        self._key = key
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=timeout_seconds)
        self._max_wait_seconds = _CONNECT_SECONDS + timeout_seconds
        self._adapters: WeakSet[OpenAIAdapter] = WeakSet()
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        """`new_connection` → session: False keeps connections open, True uses each connection once."""

    async def complete(self, body: Mapping[str, Any] | bytes, *, authorization: str | None = None) -> dict[str, Any]:
        """Request a chat completion without streaming.

        Raises:
            ProviderFailed: the request failed.
        """
        with _transport_errors():
            async with await self._post(body, authorization) as response:
                content = await self._read(response)
        await _require_success(response, content, has_own_key=authorization is not None)
        completion = await compute(_parse_completion, content, is_large=len(content) > INLINE_BYTES)
        if not completion.get("choices"):
            raise ProviderFailed(PROVIDER, 200, "the answer has no choices")
        return completion

    @asynccontextmanager
    async def stream(
        self, body: Mapping[str, Any] | bytes, *, authorization: str | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Request a streamed chat completion; yields the data of its events, without the final `[DONE]`.

        Raises:
            ProviderFailed: the request failed, or the stream ended early.
        """
        with _transport_errors():
            response = await self._post(body, authorization)
        try:
            if response.status >= 300:
                with _transport_errors():
                    content = await self._read(response)
                await _require_success(response, content, has_own_key=authorization is not None)
            yield _event_data(response, self.max_answer_bytes)
        finally:
            response.close() if not response.content.is_eof() else response.release()

    async def models(self, *, authorization: str | None = None) -> dict[str, Any]:
        """The provider's list of models.

        Raises:
            ProviderFailed: the request failed.
        """
        return await self._get("models", authorization)

    async def model(self, model_id: str, *, authorization: str | None = None) -> dict[str, Any]:
        """One of the provider's models.

        Raises:
            RequestRefused: the id would be another path.
            ProviderFailed: the request failed.
        """
        if model_id in {"", ".", ".."}:
            raise RequestRefused(404, "There is no such model.", "model_not_found", "model")
        return await self._get(f"models/{quote(model_id, safe='')}", authorization)

    async def _get(self, path: str, authorization: str | None) -> dict[str, Any]:
        with _transport_errors():
            request = self._session().get(
                f"{self.url}/{path}", headers=self._headers(authorization), allow_redirects=False
            )
            async with request as response:
                content = await self._read(response)
        await _require_success(response, content, has_own_key=authorization is not None)
        return _json_object(content)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        while received := await response.content.readany():
            content += received
            _require_size(len(content), self.max_answer_bytes)
        return bytes(content)

    async def _post(self, body: Mapping[str, Any] | bytes, authorization: str | None) -> aiohttp.ClientResponse:
        """Send the request, and retry it once on a new connection if the first was closed before the response.

        A provider closes idle connections, possibly at the moment when the next request is sent. The other pooled
        connections were idle as long, so the retry does not use them. The official clients retry in this case too.
        """
        content = body if isinstance(body, bytes) else json_bytes(body)
        for new_connection in (False, True):
            try:
                # After an informational response (status 1xx), aiohttp would wait without a timeout.
                async with asyncio.timeout(self._max_wait_seconds):
                    return await self._session(new_connection=new_connection).post(
                        f"{self.url}/chat/completions",
                        data=content if len(content) < _LARGE_BODY_BYTES else io.BytesIO(content),
                        headers=self._headers(authorization),
                        allow_redirects=False,
                    )
            except aiohttp.ClientConnectorError:
                raise  # no connection was opened, so none was closed early
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if new_connection:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _session(self, *, new_connection: bool = False) -> aiohttp.ClientSession:
        """The shared session, created on first use because it belongs to the running event loop.

        With `new_connection`, every request opens a connection, which is closed after the response.
        """
        session = self._sessions.get(new_connection)
        if session is None:
            options: dict[str, Any] = {"force_close": True} if new_connection else {"keepalive_timeout": 30.0}
            session = self._sessions[new_connection] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=1_000, **options),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=self._timeout,
            )
        return session

    def openai_adapter(self, model: str, **options: Any) -> OpenAIAdapter:
        """An adapter of the official client for the same provider. It does not use the connections of this client."""
        adapter = OpenAIAdapter(model, base_url=self.url, api_key=self._key or "none", **options)
        self._adapters.add(adapter)
        return adapter

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()
        for adapter in list(self._adapters):
            await adapter.aclose()

    def _headers(self, authorization: str | None) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if authorization is not None:
            return headers | {"authorization": authorization}
        return headers if self._key is None else headers | {"authorization": f"Bearer {self._key}"}


@contextmanager
def _transport_errors() -> Iterator[None]:
    """Raise connection errors as `ProviderFailed`."""
    try:
        yield
    except _TRANSPORT_ERRORS as error:
        raise error_from_transport(PROVIDER, error) from error


async def _event_data(response: aiohttp.ClientResponse, max_bytes: int) -> AsyncIterator[bytes]:
    """The data of each event. Comments and events without data are skipped."""
    incomplete_line: list[bytes] = []
    size = 0
    while True:
        with _transport_errors():
            received = await response.content.readany()
        if not received:
            raise ProviderFailed(PROVIDER, None, "the stream ended before [DONE]", retryable=True)
        size += len(received)
        _require_size(size, max_bytes)
        end, newline, rest = received.rpartition(b"\n")
        lines = b"".join([*incomplete_line, end]).split(b"\n") if newline else []
        incomplete_line = [rest] if newline else [*incomplete_line, rest]
        for line in lines:
            if line.startswith(b"data:"):
                data = line[5:].strip()
                if data == b"[DONE]":
                    await _read_to_end(response)
                    return
                yield data


async def _read_to_end(response: aiohttp.ClientResponse) -> None:
    """Read the end of the stream, which makes the connection reusable."""
    with suppress(*_TRANSPORT_ERRORS):
        async with asyncio.timeout(_END_SECONDS):
            while await response.content.readany():
                pass


def _require_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ProviderFailed(PROVIDER, 200, f"the answer has more than {max_bytes} bytes")


async def _require_success(response: aiohttp.ClientResponse, content: bytes, *, has_own_key: bool) -> None:
    """Raise the provider's error. A rejected key is the client's error only if the client sent it."""
    status = response.status
    if 200 <= status < 300:
        return
    if status < 400:
        raise ProviderFailed(PROVIDER, status, "the provider redirects requests; check upstream.url")
    fields = await compute(_error_fields, content, is_large=len(content) > INLINE_BYTES)
    problem, code = error_reason(fields)
    headers = {name.lower(): value for name, value in response.headers.items()}
    error = error_from_status(PROVIDER, status, problem, code=code, headers=headers)
    if status >= 500 or isinstance(error, ContextOverflow) or (status in {401, 403} and not has_own_key):
        raise error
    raise ProviderRefused(
        PROVIDER,
        status,
        problem,
        error.retry_after_seconds,
        error.retryable,
        fields,
        {name: value for name, value in headers.items() if _PASSED_HEADERS.match(name)},
    )


def _error_fields(content: bytes) -> dict[str, Any]:
    """The fields of an error response. Some servers send only a text, as `error`, `detail` or `msg`, or a list of errors."""
    body = _json_value(content)
    for name in ("error", "detail", "msg"):
        if isinstance(body, list) and body:
            body = body[0]
        if isinstance(body, dict) and "message" not in body:
            body = body.get(name, body)
    if isinstance(body, str):
        body = {"message": body}
    fields = body.items() if isinstance(body, dict) else ()
    return {key: value[:MAX_REASON_CHARACTERS] if isinstance(value, str) else value for key, value in fields}


def _json_value(content: bytes) -> Any:
    """The JSON value of a response; None if it is not JSON or has too many levels."""
    try:
        # Decoded here: json.loads would first guess the encoding of bytes, which takes time.
        value = json.loads(content.decode("utf-8", "surrogatepass"), parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None
    return None if is_deeper(value, _MAX_DEPTH) else value


def _reject_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _json_object(content: bytes) -> dict[str, Any]:
    value = _json_value(content)
    if not isinstance(value, dict):
        raise ProviderFailed(PROVIDER, 200, "the response is not a JSON object")
    return value


class _Function(BaseModel):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(BaseModel):
    id: str | None = None
    index: int | None = None
    function: _Function | None = None


class _Message(BaseModel):
    role: str | None = None
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(BaseModel):
    index: int | None = None
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: dict[str, Any] | None = None
    completion_tokens_details: dict[str, Any] | None = None


class _Completion(BaseModel):
    """The fields of a completion or a chunk that the service reads. Others may have any type."""

    model_config = ConfigDict(strict=True)
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


def _parse_completion(content: bytes) -> dict[str, Any]:
    return _valid_completion(_json_object(content))


def _valid_completion(value: dict[str, Any]) -> dict[str, Any]:
    """Return a completion or a chunk.

    Raises:
        ContextOverflow: the provider reports that error with a success status.
        ProviderFailed: a field has the wrong type, or the provider reports another error with a success status.
    """
    if "error" in value and value["error"] is not None:
        problem, code = error_reason(value)
        error = error_from_status(PROVIDER, 400, problem, code=code)
        raise error if isinstance(error, ContextOverflow) else ProviderFailed(PROVIDER, 500, problem)
    try:
        _Completion.model_validate(value, strict=True)
    except ValidationError as error:
        location = ".".join(map(str, error.errors()[0]["loc"]))
        raise ProviderFailed(PROVIDER, 200, f"{location} has the wrong type") from None
    return value


SpendTokens = Callable[[CompletionAccumulator], AbstractAsyncContextManager[None]]
"""Reserves and counts the tokens of one provider call."""


class UpstreamAdapter(OpenAIAdapter):
    """Calls the provider over the service's connections, with the caller's `authorization` if there is one.

    Every request runs in the context that `spend_tokens` returns for the completion that will be received.
    """

    _error_source: ClassVar[str] = PROVIDER

    def __init__(
        self,
        upstream: Upstream,
        model: str,
        *,
        authorization: str | None,
        spend_tokens: SpendTokens,
        **client_options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(model, **client_options)
        self._upstream, self._authorization, self._spend_tokens = upstream, authorization, spend_tokens

    async def _receive(self, request: ModelRequest, answer: CompletionAccumulator, on_delta: OnDelta | None) -> None:
        async with self._spend_tokens(answer):
            await super()._receive(request, answer, on_delta)

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        body = super()._arguments(request)
        options: Mapping[str, Any] = body.pop("extra_body")
        return {**body, **options}

    async def _complete(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._upstream.complete(arguments, authorization=self._authorization)

    async def _chunks(self, arguments: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        async with self._upstream.stream(arguments, authorization=self._authorization) as events:
            async for _, chunk in parse_chunks(events):
                yield chunk
