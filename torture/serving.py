"""The service, killed while it streams, and clients that ask again until they have their answer."""

import asyncio
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from bench.report import progress
from minutebook.record.message import text_of
from minutebook.store.url import open_store
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say, slow
from minutebook.testing.script import ReceivedRequest
from torture.completions import CompletionTalker
from torture.killing import Tally
from torture.ledger import Found
from torture.nursery import Nursery
from torture.replica import Replica
from torture.responses import ResponseTalker
from torture.story import found_at_the_end, found_now, strays
from torture.talker import Talker
from torture.threads import ThreadTalker

TOLD = 20
SOONEST_SECONDS, LATEST_SECONDS = 0.05, 0.8
"""When a server is killed after it began to answer."""
MIX: Mapping[str, Callable[..., Talker]] = {
    "completions": CompletionTalker,
    "conversation": ResponseTalker,
    "previous": partial(ResponseTalker, chained=True),
    "threads": ThreadTalker,
}
"""Who talks: two of each, one who gives keys and one who counts its tries."""


def model() -> ScriptedModel:
    """Looks something up for every question, then answers. The same question always has the same answer."""

    def answer(request: ReceivedRequest) -> Any:
        last = request.messages[-1]
        pace = slow(0.005, between_seconds=0.003)
        if last["role"] == "tool":
            return pace + say(f"The answer is {last['content']}, as far as anybody knows.")
        return pace + call("look_up", what=text_of(last))

    return ScriptedModel(otherwise=answer)


def kill_service(
    db: str,
    kills: int,
    *,
    replicas: int = 1,
    talk: Sequence[str] = tuple(MIX),
    seed: int = 7,
    name: str = "",
    nursery: Nursery | None = None,
    harm: Callable[[Replica], None] = Replica.kill,
) -> Tally:
    """Kill one of the replicas at random moments of load, and start it again; or do another `harm` to it.

    Raises:
        AssertionError: a client saw something else than that it has to ask again.
    """
    draw, tally, stopping = random.Random(seed), Tally(), threading.Event()
    with (
        Nursery() if nursery is None else nullcontext(nursery) as born,
        tempfile.TemporaryDirectory(prefix="minutebook-torture-") as folder,
        LoopbackProvider(model(), remember=10, wait=time.sleep) as provider,
        _running([Replica(born, Path(folder), db, provider.base_url) for _ in range(replicas)]) as servers,
    ):
        talkers = [MIX[kind](f"{kind}-{keyed}", servers, stopping, keyed) for kind in talk for keyed in (True, False)]
        with _talking(talkers, stopping):
            for kill in range(kills):
                time.sleep(draw.uniform(SOONEST_SECONDS, LATEST_SECONDS))
                harm(draw.choice(servers))
                tally.kills += 1
                tally.found += asyncio.run(_found(db, talkers, whole=False))
                _require_no_problem(talkers)
                if kill % TOLD == TOLD - 1:
                    answered = sum(talker.answered for talker in talkers)
                    progress(f"{name}: {kill + 1:,} of {kills:,} killed, {answered:,} answers")
    _require_no_problem(talkers)
    tally.found += asyncio.run(_found(db, talkers, whole=True))
    tally.acknowledged = sum(talker.answered for talker in talkers)
    tally.unheard = sum(talker.asked_again for talker in talkers)
    progress(f"{name}: clients saw {_seen(talkers)}")
    return tally


def _require_no_problem(talkers: Sequence[Talker]) -> None:
    problems = [talker.problem for talker in talkers if talker.problem is not None]
    assert not problems, "; ".join(problems)


def _seen(talkers: Sequence[Talker]) -> str:
    seen = sum((talker.seen for talker in talkers), Counter[str]())
    return ", ".join(f"{count:,} x {what}" for what, count in seen.most_common()) or "nothing"


async def _found(db: str, talkers: Sequence[Talker], *, whole: bool) -> Found:
    """What is wrong with what the talkers were told: of the newest conversations while they talk, of all at the end."""
    found = Found()
    async with open_store(db) as store:
        for talker in talkers:
            for story in talker.stories if whole else talker.stories[-2:]:
                found += await (found_at_the_end if whole else found_now)(store, story)
        if whole:
            unnamed, mixed = await strays(store, [story for talker in talkers for story in talker.stories])
            progress(f"{unnamed:,} conversations were left by tries that died")
            found.doubled += mixed
    return found


@contextmanager
def _running(replicas: list[Replica]) -> Iterator[list[Replica]]:
    try:
        for replica in replicas:
            replica.start()
        yield replicas
    finally:
        for replica in replicas:
            replica.stop()


@contextmanager
def _talking(talkers: Sequence[Talker], stopping: threading.Event) -> Iterator[None]:
    threads = [threading.Thread(target=talker.talk) for talker in talkers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
