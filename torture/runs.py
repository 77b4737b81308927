"""Kills a process during `Conversation.run`, many times. Each new process continues the run that it finds."""

import logging
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any

from bench.report import progress
from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.events import RunFinished, ViewBuilt
from minutebook.agent.messages import ModelReply, ModelRequest, OnDelta, Usage
from minutebook.conversation.handle.sync_conversation import Conversation
from minutebook.errors import ConversationBusy, LeaseLost
from minutebook.history import TurnWindowManager
from minutebook.prompt.tools import tool
from minutebook.record.message import Message, is_user, role_of
from torture.checker import Violations
from torture.kills import KILLS_PER_PROGRESS, CrashResult, run_and_kill
from torture.writers import WriterProcess

CONVERSATION = "tasks"
CALLS = 4
"""Tool calls of one run."""
LEASE_SECONDS = 0.6
"""A killed process keeps its lease for this long, and the next one waits for it."""
KILLS_PER_CHECK = 5


@dataclass(frozen=True)
class RunTask:
    """The runs of a process. Their requests are `task 0`, `task 1`, …, until it is killed or `stop` is reached."""

    url: str
    stop: int | None = None


def complete_run(task: int) -> list[Message]:
    """The record of one run that was not killed."""
    messages: list[Message] = [{"role": "user", "content": f"task {task}"}]
    for number in range(CALLS):
        messages.append(_call(task, number))
        result = {"role": "tool", "tool_call_id": f"{task}-{number}", "name": "look", "content": look(task, number)}
        messages.append(result)
    return [*messages, {"role": "assistant", "content": f"answer to task {task}"}]


def _call(task: int, number: int) -> dict[str, Any]:
    function = {"name": "look", "arguments": f'{{"task": {task}, "number": {number}}}'}
    calls = [{"id": f"{task}-{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def look(task: int, number: int) -> str:
    """Look something up."""
    return f"found {task} {number} " * 20


class TaskModel(ProviderAdapter):
    """A model that calls `look` some times for each task, then answers."""

    async def ask(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelReply:  # noqa: ARG002
        start = max(index for index, message in enumerate(request.messages) if is_user(message))
        task = int(str(request.messages[start]["content"]).split()[1])
        number = sum(role_of(message) == "tool" for message in request.messages[start:])
        message = _call(task, number) if number < CALLS else dict(complete_run(task)[-1])
        return ModelReply(message, Usage(input_tokens=1, output_tokens=1))


def run_tasks(task: RunTask, key_sender: Connection) -> None:
    """Run tasks, and send the number of messages that are stored each time the model is called and after each answer."""
    logging.disable(logging.CRITICAL)
    with Conversation(CONVERSATION, store=task.url, manager=TurnWindowManager(1)) as chat:
        while not _is_done(task, chat):
            with suppress(LeaseLost):  # this process was stopped for longer than the lease lasts
                _run_with_lease(task, chat, key_sender)


def _run_with_lease(task: RunTask, chat: Conversation, key_sender: Connection) -> None:
    try:
        with chat.lease(seconds=LEASE_SECONDS):
            while not _is_done(task, chat):
                _run_task(chat, key_sender)
    except ConversationBusy as busy:  # the process before this one was killed while it had the lease
        time.sleep(max(0.0, (busy.until - datetime.now(UTC)).total_seconds()))


def _run_task(chat: Conversation, key_sender: Connection) -> None:
    request = f"task {_next_task(chat)}" if _is_answered(chat) else None
    for event in chat.stream(TaskModel("scripted"), request, tools=[tool(look, idempotent=True)]):
        if isinstance(event, ViewBuilt):
            key_sender.send_bytes(str(event.view.length).encode())
        elif isinstance(event, RunFinished):
            key_sender.send_bytes(str(len(event.response.conversation)).encode())


def _is_done(task: RunTask, chat: Conversation) -> bool:
    return task.stop is not None and _next_task(chat) >= task.stop and _is_answered(chat)


def _next_task(chat: Conversation) -> int:
    return sum(map(is_user, chat))


def _is_answered(chat: Conversation) -> bool:
    return not len(chat) or (role_of(chat[-1]) == "assistant" and not chat[-1].get("tool_calls"))


def kill_runs(url: str, kills: int, *, seed: int = 6, name: str = "") -> CrashResult:
    """Kill a process during its runs many times. Then let one finish, and compare the record with the complete runs."""
    draw, result = random.Random(seed), CrashResult()
    acknowledged = 0
    for kill in range(kills):
        process = WriterProcess(RunTask(url), target=run_tasks)
        acknowledged = max([acknowledged, *map(int, run_and_kill(process, draw))])
        result.kills += 1
        if kill % KILLS_PER_CHECK == KILLS_PER_CHECK - 1:
            result.violations += check_runs(url, acknowledged)
        if kill % KILLS_PER_PROGRESS == KILLS_PER_PROGRESS - 1:
            progress(f"{name}: {kill + 1:,} of {kills:,} kills, {acknowledged:,} messages acknowledged")
    tasks = acknowledged // len(complete_run(0)) + 2
    process = WriterProcess(RunTask(url, tasks), target=run_tasks)
    acknowledged = max([acknowledged, *map(int, process.acknowledged_keys())])
    process.wait()
    result.violations += check_runs(url, acknowledged)
    result.violations.lost += acknowledged != tasks * len(complete_run(0))
    result.acknowledged = acknowledged
    with Conversation(CONVERSATION, store=url) as chat:
        requests = chat.requests(last=1_000_000)
        result.retries = len(requests) - tasks * (CALLS + 1)
        result.violations.gaps += [request.number for request in requests] != list(range(1, len(requests) + 1))
        answered = sum(request.usage is not None for request in requests)
        result.violations.lost += max(0, tasks * (CALLS + 1) - answered)
        result.violations.duplicates += max(0, answered - tasks * (CALLS + 1))
    return result


def check_runs(url: str, acknowledged: int) -> Violations:
    """Compare the stored record with that of runs that were not killed."""
    with Conversation(CONVERSATION, store=url) as chat:
        return compare_runs(list(chat), acknowledged)


def compare_runs(stored: Sequence[Message], acknowledged: int) -> Violations:
    """The violations of a record of which this many messages were acknowledged."""
    keys = [str(message) for message in stored]
    last = stored[-1] if stored else {}
    return Violations(
        lost=max(0, acknowledged - len(stored)),
        partial=int(bool(last.get("tool_calls"))),
        duplicates=len(keys) - len(set(keys)),
        out_of_order=sum(
            message != expected for message, expected in zip(stored, _complete_runs(len(stored)), strict=False)
        ),
    )


def _complete_runs(length: int) -> Iterator[Message]:
    for task in range(length // len(complete_run(0)) + 1):
        yield from complete_run(task)
