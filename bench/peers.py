"""Adapters for the peers, used as their documentation says. Runs in the peers' environment.

python -m bench.peers RESULT.json calls ROUNDS ALLOWANCE_SECONDS
python -m bench.peers RESULT.json store quick|full [POSTGRESQL-URL]
"""

import json
import logging
import sys
import warnings
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from splintr import Tokenizer

from bench import store, store_adapters
from bench.contest import BUDGET, WARM_UP_TEXT, WINDOW, ContestantFactory, ContestEntry, contest, our_entries
from bench.session import long_conversation
from minutebook import Message

T = TypeVar("T")

_encode: Callable[[str], list[int]] = Tokenizer.from_pretrained("o200k_base").encode_ordinary


class StatelessPeer:
    """A function that trims the whole conversation, in the peer's classes."""

    def __init__(self, converted: Sequence[Any], trim: Callable[[list[Any]], Sequence[Any]]) -> None:
        self._converted = converted
        self._trim = trim
        self._list: list[Any] = []

    def add(self, start: int, stop: int) -> None:
        self._list += self._converted[start:stop]

    def view(self) -> Sequence[Any]:
        return self._trim(self._list)


def _count_exactly(message: Any) -> int:
    """Count the content, and the name and arguments of each call, as a user of langchain-core would."""
    calls = getattr(message, "tool_calls", ())
    call_texts = (call["name"] + json.dumps(call["args"]) for call in calls)
    return 4 + len(_encode(message.content)) + sum(8 + len(_encode(call)) for call in call_texts)


def langchain(counter: str) -> Callable[[list[Message]], ContestantFactory]:
    def make(messages: list[Message]) -> ContestantFactory:
        from langchain_core.messages import convert_to_messages, trim_messages
        from langchain_core.messages.utils import count_tokens_approximately

        converted = convert_to_messages(messages)
        _encode(WARM_UP_TEXT)  # loads what the tokenizer loads on first use
        cache: dict[int, int] = {}

        def count_cached(history: list[Any]) -> int:
            for message in history:
                if id(message) not in cache:
                    cache[id(message)] = _count_exactly(message)
            return sum(cache[id(message)] for message in history)

        count = {
            "exact": lambda history: sum(map(_count_exactly, history)),
            "cached": count_cached,
            "approximate": count_tokens_approximately,
        }[counter]

        def trim(history: list[Any]) -> Sequence[Any]:
            trimmed: Sequence[Any] = trim_messages(
                history, max_tokens=BUDGET, token_counter=count, strategy="last", include_system=True, start_on="human"
            )
            return trimmed

        def fresh() -> StatelessPeer:
            cache.clear()
            return StatelessPeer(converted, trim)

        return fresh

    return make


def litellm(messages: list[Message]) -> ContestantFactory:
    module = import_module("litellm.utils")

    def trim(history: list[Any]) -> Sequence[Any]:
        trimmed: Sequence[Any] = module.trim_messages(history, model="gpt-4o", max_tokens=BUDGET)
        return trimmed

    return lambda: StatelessPeer(messages, trim)


class LlamaIndex:
    """The buffer stores the messages itself, so it gets only the new ones."""

    def __init__(self, converted: Sequence[Any]) -> None:
        from llama_index.core.memory import ChatMemoryBuffer

        self._converted = converted
        self._memory = ChatMemoryBuffer.from_defaults(token_limit=BUDGET, tokenizer_fn=_encode)

    def add(self, start: int, stop: int) -> None:
        for message in self._converted[start:stop]:
            self._memory.put(message)

    def view(self) -> Sequence[Any]:
        view: Sequence[Any] = self._memory.get()
        return view


def llama_index(messages: list[Message]) -> ContestantFactory:
    converted = _for_llama_index(messages)
    return lambda: LlamaIndex(converted)


def _for_llama_index(messages: Sequence[Message]) -> list[Any]:
    from llama_index.core.llms import ChatMessage

    return [
        ChatMessage(
            role=message["role"],
            content=message["content"],
            additional_kwargs={
                "index": index,
                **{k: message[k] for k in ("tool_calls", "tool_call_id") if k in message},
            },
        )
        for index, message in enumerate(messages)
    ]


class Strands:
    """The manager trims the agent's list of messages in place. The system prompt is not in it."""

    def __init__(self, converted: list[Any], stops: list[int]) -> None:
        from strands.agent.conversation_manager import SlidingWindowConversationManager

        self._converted, self._stops = converted, stops
        self._agent = SimpleNamespace(messages=[])
        self._manager = SlidingWindowConversationManager(window_size=WINDOW)

    def add(self, start: int, stop: int) -> None:
        self._agent.messages.extend(self._converted[self._stops[start] : self._stops[stop]])

    def view(self) -> Sequence[Any]:
        self._manager.apply_management(self._agent)
        view: Sequence[Any] = self._agent.messages
        return view


def strands(messages: list[Message]) -> ContestantFactory:
    converted: list[Any] = []
    stops = [0]
    for message in messages:
        role, text = message["role"], [{"text": message["content"]}] if message["content"] else []
        if role == "tool":
            block = {"toolResult": {"toolUseId": message["tool_call_id"], "content": text, "status": "success"}}
            if converted and "toolResult" in converted[-1]["content"][0]:
                converted[-1]["content"].append(block)
            else:
                converted.append({"role": "user", "content": [block]})
        elif role != "system":
            uses = [
                {"toolUse": {"toolUseId": call["id"], "name": call["function"]["name"], "input": {}}}
                for call in message.get("tool_calls") or ()
            ]
            converted.append({"role": role, "content": [*text, *uses] or [{"text": " "}]})
        stops.append(len(converted))
    return lambda: Strands(converted, stops)


class Autogen:
    """Its methods are coroutines that never suspend, so they run without an event loop."""

    def __init__(self, converted: list[Any]) -> None:
        context = import_module("autogen_core.model_context")
        self._converted = converted
        self._context = context.BufferedChatCompletionContext(buffer_size=WINDOW)

    def add(self, start: int, stop: int) -> None:
        for message in self._converted[start:stop]:
            _run(self._context.add_message(message))

    def view(self) -> Sequence[Any]:
        view: Sequence[Any] = _run(self._context.get_messages())
        return view


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as finished:
        value: T = finished.value
        return value
    raise RuntimeError("the coroutine suspended")


def autogen(messages: list[Message]) -> ContestantFactory:
    models: Any = import_module("autogen_core.models")
    function_call: Any = import_module("autogen_core").FunctionCall

    def convert(message: Message) -> Any:
        text = message["content"]
        if message["role"] == "system":
            return models.SystemMessage(content=text)
        if message["role"] == "user":
            return models.UserMessage(content=text, source="user")
        if message["role"] == "tool":
            result = models.FunctionExecutionResult(
                content=text, call_id=message["tool_call_id"], name="tool", is_error=False
            )
            return models.FunctionExecutionResultMessage(content=[result])
        calls = [
            function_call(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        ]
        return models.AssistantMessage(content=calls or text, source="assistant")

    converted = [convert(message) for message in messages]
    return lambda: Autogen(converted)


def _with_version(name: str, package: str) -> str:
    try:
        return f"{name} ({package} {version(package)})"
    except ImportError:
        return f"{name} ({package})"


def their_entries() -> list[ContestEntry]:
    core = "langchain-core"
    return [
        ContestEntry(_with_version("trim_messages, exact", core), "tokens", langchain("exact"), 40),
        ContestEntry(_with_version("trim_messages, exact and cached", core), "tokens", langchain("cached")),
        ContestEntry(_with_version("trim_messages, approximate", core), "tokens", langchain("approximate"), 40),
        ContestEntry(_with_version("trim_messages", "litellm"), "tokens", litellm, 12),
        ContestEntry(_with_version("ChatMemoryBuffer, exact", "llama-index-core"), "tokens", llama_index, 40),
        ContestEntry(_with_version("SlidingWindow", "strands-agents"), "count", strands),
        ContestEntry(_with_version("BufferedContext", "autogen-core"), "count", autogen),
    ]


def measure_calls(rounds: int, allowance_seconds: float) -> list[dict[str, Any]]:
    conversation = long_conversation()
    timings = contest(
        [*our_entries(), *their_entries()],
        conversation.messages,
        conversation.calls,
        rounds=rounds,
        allowance_seconds=allowance_seconds,
    )
    return [timing.as_json() for timing in timings]


def measure_store(effort: str, server: str | None = None) -> list[dict[str, Any]]:
    from bench.peer_stores import their_contenders

    contenders = [*store_adapters.our_contenders(server=bool(server)), *their_contenders(server=bool(server))]
    return [score.as_json() for score in store.run_contest(contenders, effort, server)]


def main(result_path: str, part: str, *settings: str) -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    if part == "calls":
        result: Any = measure_calls(int(settings[0]), float(settings[1]))
    else:
        result = measure_store(*settings)
    Path(result_path).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
