"""The line to the provider, with a provider that hangs up."""

import asyncio
import json

import pytest

from minutebook.errors import ProviderFailed
from minutebook.service.upstream import Upstream

WHOLE = {"choices": [{"message": {"role": "assistant", "content": "Hello."}}]}
WHOLE_BYTES = json.dumps(WHOLE).encode()
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


class Provider:
    """Answers as often on each line as it is told, then reads one request more and hangs up."""

    def __init__(self, *answers_of_each_line, says=WHOLE_BYTES):
        self.left = list(answers_of_each_line)
        self.requests = 0
        self.says = says

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._line, "127.0.0.1", 0)
        return self, Upstream(f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/v1")

    async def __aexit__(self, *_):
        self.server.close()
        await self.server.wait_closed()

    async def _line(self, reader, writer):
        answers = self.left.pop(0) if self.left else 0
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                self.requests += 1
                if not answers:
                    break
                answers -= 1
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(WHOLE_BYTES), self.says))
                if self.says != WHOLE_BYTES:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


async def asked(upstream, times=1, **more):
    try:
        return [await upstream.ask({**ASKED, **more}) for _ in range(times)]
    finally:
        await upstream.close()


@pytest.mark.parametrize("words", ["Hello", "many words " * 200_000])
def test_a_line_that_was_closed_meanwhile_fails_nobody(words):
    async def main():
        async with Provider(1, 1) as (provider, upstream):
            messages = [{"role": "user", "content": words}]
            return await asked(upstream, 2, messages=messages), provider.requests

    assert asyncio.run(main()) == ([WHOLE, WHOLE], 3)


def test_all_lines_closed_at_once_fail_nobody():
    async def main():
        async with Provider(*[1] * 60) as (provider, upstream):
            together = [await asyncio.gather(*(upstream.ask(ASKED) for _ in range(30))) for _ in range(2)]
            await upstream.close()
            return together, provider.requests

    assert asyncio.run(main()) == ([[WHOLE] * 30] * 2, 90)


def test_of_many_lines_that_were_closed_none_is_tried_after_another():
    async def main():
        async with Provider(*[1] * 40) as (provider, upstream):
            await asyncio.gather(*(upstream.ask(ASKED) for _ in range(30)))
            assert await upstream.ask(ASKED) == WHOLE
            await upstream.close()
            return provider.requests

    assert asyncio.run(main()) == 32


def test_a_stream_is_asked_for_again_too():
    async def main():
        async with Provider(1, 1) as (provider, upstream):
            await upstream.ask(ASKED)
            async with upstream.stream({**ASKED, "stream": True}):
                pass
            await upstream.close()
            return provider.requests

    assert asyncio.run(main()) == 3


def test_a_provider_that_only_hangs_up_is_asked_twice():
    async def main():
        async with Provider() as (provider, upstream):
            with pytest.raises(ProviderFailed) as caught:
                await asked(upstream)
            return caught.value.retryable, provider.requests

    assert asyncio.run(main()) == (True, 2)


def test_an_answer_that_breaks_off_is_not_asked_for_again():
    async def main():
        async with Provider(1, says=b'{"choices"') as (provider, upstream):
            with pytest.raises(ProviderFailed):
                await asked(upstream)
            return provider.requests

    assert asyncio.run(main()) == 1


def test_where_nobody_listens_nobody_is_asked_again():
    async def main():
        async with Provider() as (provider, upstream):
            pass
        with pytest.raises(ProviderFailed):
            await asked(upstream)
        return provider.requests

    assert asyncio.run(main()) == 0
