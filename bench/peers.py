"""The peers, each as its own documentation has it used. Runs in the peers' environment, never in ours.

python -m bench.peers ANSWER.json calls ROUNDS ALLOWANCE_SECONDS
python -m bench.peers ANSWER.json replay BUDGET MOST LEAST FILE...
python -m bench.peers ANSWER.json store quick|full [POSTGRESQL-URL]
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

from bench import keepers, store
from bench.contest import BUDGET, FIRST, WINDOW, Entry, Fresh, contest, our_entries
from bench.corpus import conversations
from bench.replay import Policy, recordings, replay
from bench.session import long_conversation
from minutebook import Message
from minutebook.tokens import ExactCounter

T = TypeVar("T")

_encode: Callable[[str], list[int]] = Tokenizer.from_pretrained("o200k_base").encode_ordinary
_counter = ExactCounter()


class Stateless:
    """A function of the whole conversation, in its own classes."""

    def __init__(self, converted: Sequence[Any], trim: Callable[[list[Any]], Sequence[Any]]) -> None:
        self._converted = converted
        self._trim = trim
        self._list: list[Any] = []

    def feed(self, start: int, stop: int) -> None:
        self._list += self._converted[start:stop]

    def view(self) -> Sequence[Any]:
        return self._trim(self._list)


def _exact(message: Any) -> int:
    """How a user of langchain-core would count a message: content, and name and arguments of each call."""
    calls = getattr(message, "tool_calls", ())
    written = (call["name"] + json.dumps(call["args"]) for call in calls)
    return 4 + len(_encode(message.content)) + sum(8 + len(_encode(call)) for call in written)


def langchain(counter: str) -> Callable[[list[Message]], Fresh]:
    def make(messages: list[Message]) -> Fresh:
        from langchain_core.messages import convert_to_messages, trim_messages
        from langchain_core.messages.utils import count_tokens_approximately

        converted = convert_to_messages(messages)
        _encode(FIRST)  # what the tokenizer puts off until then is not the peer's
        known: dict[int, int] = {}

        def remembered(given: list[Any]) -> int:
            for message in given:
                if id(message) not in known:
                    known[id(message)] = _exact(message)
            return sum(known[id(message)] for message in given)

        count = {
            "exact": lambda given: sum(map(_exact, given)),
            "remembered": remembered,
            "approximate": count_tokens_approximately,
        }[counter]

        def trim(given: list[Any]) -> Sequence[Any]:
            trimmed: Sequence[Any] = trim_messages(
                given, max_tokens=BUDGET, token_counter=count, strategy="last", include_system=True, start_on="human"
            )
            return trimmed

        def fresh() -> Stateless:
            known.clear()
            return Stateless(converted, trim)

        return fresh

    return make


def litellm(messages: list[Message]) -> Fresh:
    module = import_module("litellm.utils")

    def trim(given: list[Any]) -> Sequence[Any]:
        trimmed: Sequence[Any] = module.trim_messages(given, model="gpt-4o", max_tokens=BUDGET)
        return trimmed

    return lambda: Stateless(messages, trim)


class LlamaIndex:
    """The buffer keeps the messages itself, so it is given only the new ones."""

    def __init__(self, converted: Sequence[Any]) -> None:
        from llama_index.core.memory import ChatMemoryBuffer

        self._converted = converted
        self._memory = ChatMemoryBuffer.from_defaults(token_limit=BUDGET, tokenizer_fn=_encode)

    def feed(self, start: int, stop: int) -> None:
        for message in self._converted[start:stop]:
            self._memory.put(message)

    def view(self) -> Sequence[Any]:
        view: Sequence[Any] = self._memory.get()
        return view


def llama_index(messages: list[Message]) -> Fresh:
    converted = _for_llama_index(messages, 0)
    return lambda: LlamaIndex(converted)


def _for_llama_index(messages: Sequence[Message], first: int) -> list[Any]:
    from llama_index.core.llms import ChatMessage

    return [
        ChatMessage(
            role=message["role"],
            content=message["content"],
            additional_kwargs={"at": at, **{k: message[k] for k in ("tool_calls", "tool_call_id") if k in message}},
        )
        for at, message in enumerate(messages, first)
    ]


class Strands:
    """The manager cuts the agent's own list of messages in place; the system prompt is not among them."""

    def __init__(self, converted: list[Any], upto: list[int]) -> None:
        from strands.agent.conversation_manager import SlidingWindowConversationManager

        self._converted, self._upto = converted, upto
        self._agent = SimpleNamespace(messages=[])
        self._manager = SlidingWindowConversationManager(window_size=WINDOW)

    def feed(self, start: int, stop: int) -> None:
        self._agent.messages.extend(self._converted[self._upto[start] : self._upto[stop]])

    def view(self) -> Sequence[Any]:
        self._manager.apply_management(self._agent)
        view: Sequence[Any] = self._agent.messages
        return view


def strands(messages: list[Message]) -> Fresh:
    converted: list[Any] = []
    upto = [0]
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
        upto.append(len(converted))
    return lambda: Strands(converted, upto)


class Autogen:
    """Its methods are coroutines that never wait, so they are run without the cost of a loop."""

    def __init__(self, converted: list[Any]) -> None:
        context = import_module("autogen_core.model_context")
        self._converted = converted
        self._context = context.BufferedChatCompletionContext(buffer_size=WINDOW)

    def feed(self, start: int, stop: int) -> None:
        for message in self._converted[start:stop]:
            _finish(self._context.add_message(message))

    def view(self) -> Sequence[Any]:
        view: Sequence[Any] = _finish(self._context.get_messages())
        return view


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise RuntimeError("the coroutine waits for something")


def autogen(messages: list[Message]) -> Fresh:
    models: Any = import_module("autogen_core.models")
    call: Any = import_module("autogen_core").FunctionCall

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
            call(id=made["id"], name=made["function"]["name"], arguments=made["function"]["arguments"])
            for made in message.get("tool_calls") or ()
        ]
        return models.AssistantMessage(content=calls or text, source="assistant")

    converted = [convert(message) for message in messages]
    return lambda: Autogen(converted)


def _named(name: str, package: str) -> str:
    try:
        return f"{name} ({package} {version(package)})"
    except ImportError:
        return f"{name} ({package})"


def their_entries() -> list[Entry]:
    core = "langchain-core"
    return [
        Entry(_named("trim_messages, exact", core), "tokens", langchain("exact"), 40),
        Entry(_named("trim_messages, exact and remembered", core), "tokens", langchain("remembered")),
        Entry(_named("trim_messages, approximate", core), "tokens", langchain("approximate"), 40),
        Entry(_named("trim_messages", "litellm"), "tokens", litellm, 12),
        Entry(_named("ChatMemoryBuffer, exact", "llama-index-core"), "tokens", llama_index, 40),
        Entry(_named("SlidingWindow", "strands-agents"), "count", strands),
        Entry(_named("BufferedContext", "autogen-core"), "count", autogen),
    ]


def langchain_trim(*, exact: bool) -> Policy:
    def policy(messages: list[Message], budget: int, state: dict[str, Any]) -> Sequence[Message]:
        from langchain_core.messages import convert_to_messages, trim_messages
        from langchain_core.messages.utils import count_tokens_approximately

        converted: list[Any] = state.setdefault("converted", [])
        counts: dict[int, int] = state.setdefault("counts", {})
        places: dict[int, int] = state.setdefault("places", {})
        for at in range(len(converted), len(messages)):
            converted += convert_to_messages([messages[at]])
            places[id(converted[at])] = at
            counts[id(converted[at])] = _counter.message(messages[at]) if exact else 0
        trimmed = trim_messages(
            converted,
            max_tokens=budget,
            token_counter=(lambda given: sum(counts[id(m)] for m in given)) if exact else count_tokens_approximately,
            strategy="last",
            include_system=True,
            start_on="human",
        )
        return [messages[places[id(message)]] for message in trimmed]

    return policy


def langchain_clear(messages: list[Message], budget: int, state: dict[str, Any]) -> Sequence[Message]:
    from langchain_core.messages import convert_to_messages
    from langchain_core.messages.utils import count_tokens_approximately

    editing = import_module("langchain.agents.middleware.context_editing")
    converted: list[Any] = state.setdefault("converted", [])
    converted += convert_to_messages(messages[len(converted) :])
    edited = list(converted)
    editing.ClearToolUsesEdit(trigger=budget, keep=3).apply(edited, count_tokens=count_tokens_approximately)
    rows = zip(messages, converted, edited, strict=True)
    cleared: dict[int, Message] = state.setdefault("cleared", {})
    return [
        message if before is after else cleared.setdefault(at, {**message, "content": after.content})
        for at, (message, before, after) in enumerate(rows)
    ]


def llama_index_buffer(messages: list[Message], budget: int, state: dict[str, Any]) -> Sequence[Message]:
    from llama_index.core.memory import ChatMemoryBuffer

    memory: Any = state.get("memory")
    if memory is None:
        memory = ChatMemoryBuffer.from_defaults(token_limit=budget, tokenizer_fn=_encode)
        state["memory"] = memory
    start = state.get("start", 0)
    for message in _for_llama_index(messages[start:], start):
        memory.put(message)
    state["start"] = len(messages)
    return [messages[message.additional_kwargs["at"]] for message in memory.get()]


POLICIES: dict[str, tuple[str, Policy]] = {
    "langchain-core trim_messages, exact": ("langchain_core", langchain_trim(exact=True)),
    "langchain-core trim_messages, approximate": ("langchain_core", langchain_trim(exact=False)),
    "langchain ClearToolUsesEdit": ("langchain.agents.middleware.context_editing", langchain_clear),
    "llama-index ChatMemoryBuffer": ("llama_index.core.memory", llama_index_buffer),
}


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


def measure_replay(budget: int, most: int, least: int, files: list[str]) -> dict[str, Any]:
    recorded = recordings((c for name in files for c in conversations(name)), most=most, least=least)
    answers: dict[str, Any] = {}
    for name, (needs, policy) in POLICIES.items():
        print(f"  replay: {name}", file=sys.stderr, flush=True)
        try:
            import_module(needs)
            answers[name] = vars(replay(recorded, policy, budget))
        except Exception as error:
            answers[name] = f"{type(error).__name__}: {error}"
    return answers


def measure_store(effort: str, server: str | None = None) -> list[dict[str, Any]]:
    from bench.keepers_peers import their_contenders

    contenders = [*keepers.our_contenders(server=bool(server)), *their_contenders(server=bool(server))]
    return [score.as_json() for score in store.measured(contenders, effort, server)]


def main(answer: str, part: str, *settings: str) -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    if part == "calls":
        made: Any = measure_calls(int(settings[0]), float(settings[1]))
    elif part == "store":
        made = measure_store(*settings)
    else:
        made = measure_replay(int(settings[0]), int(settings[1]), int(settings[2]), list(settings[3:]))
    Path(answer).write_text(json.dumps(made), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
