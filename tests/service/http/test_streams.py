import asyncio

import pytest

from minutebook.service.http.responses import PING, EventStream
from minutebook.service.runs import Run, Runs


class Line:
    """A connection of a client, as ASGI has it."""

    def __init__(self):
        self.sent = []
        self.sent_before_watching = None
        self.begun, self.watched = asyncio.Event(), asyncio.Event()
        self.gone = asyncio.Event()

    async def send(self, message):
        self.sent.append(message.get("body", message["type"]))
        self.begun.set()

    async def receive(self):
        self.sent_before_watching = list(self.sent)
        self.watched.set()
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def counted(*, closed):
    try:
        yield b"1"
        await asyncio.Event().wait()
        yield b"never"
    finally:
        closed.append(True)


def test_the_first_event_is_sent_before_disconnects_are_detected():
    async def main():
        line, closed = Line(), []
        answer = asyncio.create_task(EventStream(counted(closed=closed))({}, line.receive, line.send))
        await line.watched.wait()
        answer.cancel()
        return line

    line = asyncio.run(main())
    assert line.sent_before_watching == ["http.response.start", b"1"]


def test_a_disconnect_ends_the_stream_only():
    async def main():
        line, closed = Line(), []
        answer = asyncio.create_task(EventStream(counted(closed=closed))({}, line.receive, line.send))
        line.gone.set()
        async with asyncio.timeout(10):
            await answer
        return closed, answer.cancelling()

    assert asyncio.run(main()) == ([True], 0)


def test_a_stream_that_is_cancelled_by_the_server_raises():
    async def main():
        line, closed = Line(), []
        answer = asyncio.create_task(EventStream(counted(closed=closed))({}, line.receive, line.send))
        await line.begun.wait()
        answer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answer
        return closed

    assert asyncio.run(main()) == [True]


def test_readers_get_the_first_token_before_the_run_continues():
    async def main():
        line, run, seen = Line(), Run("r", "t", "c"), []

        async def made():
            run.send(b"first")
            await run.yield_to_readers()
            seen.extend(line.sent)
            run.send(b"second")

        async def answered():
            await run.wait_for_first_event()
            await EventStream(run.stream(heartbeat_seconds=30))({}, line.receive, line.send)

        listener = asyncio.create_task(answered())
        await asyncio.sleep(0)
        Runs().start(run, made())
        await listener
        return seen, line.sent

    seen, sent = asyncio.run(main())
    assert seen == ["http.response.start", b"first"]
    assert b"".join(sent[1:]) == b"firstsecond"


def test_an_idle_run_sends_pings():
    async def main():
        run = Run("r", "t", "c")
        run.send(b"0")
        run.send(b"1")
        told = run.stream(1, heartbeat_seconds=0.001)
        return [await anext(told), await anext(told), await anext(told)]

    assert asyncio.run(main()) == [b"1", PING, PING]
