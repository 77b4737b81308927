"""Connections to a provider that closes them."""

import asyncio
import json

import pytest

from minutebook.errors import ProviderFailed
from minutebook.service.upstream import Upstream

WHOLE = {"choices": [{"message": {"role": "assistant", "content": "Hello."}}]}
WHOLE_BYTES = json.dumps(WHOLE).encode()
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


class Provider:
    """Answers a number of requests per connection, then reads one more request and closes the connection."""

    def __init__(self, *answers_per_connection, response=WHOLE_BYTES):
        self.answers_left = list(answers_per_connection)
        self.requests = 0
        self.response = response

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self, Upstream(f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/v1")

    async def __aexit__(self, *_):
        self.server.close()
        await self.server.wait_closed()

    async def _serve(self, reader, writer):
        answers = self.answers_left.pop(0) if self.answers_left else 0
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                self.requests += 1
                if not answers:
                    break
                answers -= 1
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(WHOLE_BYTES), self.response))
                if self.response != WHOLE_BYTES:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


async def complete(upstream, times=1, **more):
    try:
        return [await upstream.complete({**BODY, **more}) for _ in range(times)]
    finally:
        await upstream.close()


@pytest.mark.parametrize("text", ["Hello", "many text " * 200_000])
def test_a_request_is_retried_if_its_connection_was_closed(text):
    async def main():
        async with Provider(1, 1) as (provider, upstream):
            messages = [{"role": "user", "content": text}]
            return await complete(upstream, 2, messages=messages), provider.requests

    assert asyncio.run(main()) == ([WHOLE, WHOLE], 3)


def test_all_requests_are_retried_if_all_connections_were_closed():
    async def main():
        async with Provider(*[1] * 60) as (provider, upstream):
            together = [await asyncio.gather(*(upstream.complete(BODY) for _ in range(30))) for _ in range(2)]
            await upstream.close()
            return together, provider.requests

    assert asyncio.run(main()) == ([[WHOLE] * 30] * 2, 90)


def test_the_retry_does_not_use_another_closed_connection():
    async def main():
        async with Provider(*[1] * 40) as (provider, upstream):
            await asyncio.gather(*(upstream.complete(BODY) for _ in range(30)))
            assert await upstream.complete(BODY) == WHOLE
            await upstream.close()
            return provider.requests

    assert asyncio.run(main()) == 32


def test_a_streamed_request_is_retried_too():
    async def main():
        async with Provider(1, 1) as (provider, upstream):
            await upstream.complete(BODY)
            async with upstream.stream({**BODY, "stream": True}):
                pass
            await upstream.close()
            return provider.requests

    assert asyncio.run(main()) == 3


def test_a_request_is_retried_once_only():
    async def main():
        async with Provider() as (provider, upstream):
            with pytest.raises(ProviderFailed) as caught:
                await complete(upstream)
            return caught.value.retryable, provider.requests

    assert asyncio.run(main()) == (True, 2)


def test_an_incomplete_response_is_not_retried():
    async def main():
        async with Provider(1, response=b'{"choices"') as (provider, upstream):
            with pytest.raises(ProviderFailed):
                await complete(upstream)
            return provider.requests

    assert asyncio.run(main()) == 1


def test_a_refused_connection_is_not_retried():
    async def main():
        async with Provider() as (provider, upstream):
            pass
        with pytest.raises(ProviderFailed):
            await complete(upstream)
        return provider.requests

    assert asyncio.run(main()) == 0
