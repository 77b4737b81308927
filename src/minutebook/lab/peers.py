"""Policies of other libraries, used as their documentation says, for comparison on the same sessions.

A peer gets the messages with text content and common keys only, which all of them accept. What it returns is measured as it
is. A library is imported when its policy is used; none of them is a dependency of minutebook.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from minutebook.errors import InvalidSetting, MinutebookError, one_of
from minutebook.lab.replay import Peer
from minutebook.record.message import Message, leading_system_count, text_of
from minutebook.tokens import TokenCounter, counter_for

WINDOW: Final = 40
"""Messages in the windows of peers that count messages."""
Selected: TypeAlias = list[tuple[Message, int | None]]


class MissingPeer(MinutebookError, ImportError):
    """The library of a peer is not installed."""

    def __init__(self, peer: str, package: str) -> None:
        super().__init__(peer, package)
        self.peer, self.package = peer, package

    def __str__(self) -> str:
        return f"peer {self.peer} needs the package {self.package}; pip install {self.package}"


def plain(message: Mapping[str, Any]) -> Message:
    """A message in the form that every peer accepts: text content, and only common keys."""
    content = message.get("content")
    common_keys = ("role", "content", "tool_calls", "tool_call_id", "name")
    converted = {name: value for name, value in message.items() if name in common_keys and value not in (None, [])}
    if not isinstance(content, str):
        content = text_of(message) or ("" if content is None else json.dumps(content, ensure_ascii=False))
    converted["content"] = content
    if converted["role"] == "developer":
        converted["role"] = "system"
    return converted


class _Converted:
    """The messages so far in a peer's classes. Each is converted once."""

    def __init__(self, convert: Callable[[Message, int], Any]) -> None:
        self._convert = convert
        self.items: list[Any] = []
        self.indexes: dict[int, int] = {}
        """id of an item → its index."""

    def extend(self, messages: Sequence[Message]) -> list[Any]:
        """Convert the new messages, and return their items."""
        start = len(self.items)
        for index in range(start, len(messages)):
            item = self._convert(plain(messages[index]), index)
            self.items.append(item)
            self.indexes[id(item)] = index
        return self.items[start:]


class CountWindow:
    """The system message and the last messages, without results whose call is left out."""

    def __init__(self, _budget: int) -> None:
        self._count = WINDOW

    def select(self, messages: Sequence[Message]) -> Selected:
        leading = leading_system_count(messages)
        start = max(leading, len(messages) - self._count)
        while start < len(messages) and messages[start]["role"] == "tool":
            start += 1
        return [(messages[index], index) for index in (*range(leading), *range(start, len(messages)))]


class LangchainTrim:
    """`trim_messages` of langchain-core: the last messages that fit, from a user message on."""

    def __init__(self, budget: int, *, exact: bool) -> None:
        messages = import_module("langchain_core.messages")
        self._budget, self._trim = budget, messages.trim_messages
        self._converted = _Converted(lambda message, _: messages.convert_to_messages([message])[0])
        self._counter: TokenCounter = counter_for(None)
        self._tokens: dict[int, int] = {}
        approximate = import_module("langchain_core.messages.utils").count_tokens_approximately
        self._count = self._count_exactly if exact else approximate
        self._messages: Sequence[Message] = ()

    def _count_exactly(self, items: Sequence[Any]) -> int:
        total = 0
        for item in items:
            if id(item) not in self._tokens:
                index = self._converted.indexes[id(item)]
                self._tokens[id(item)] = self._counter.message(self._messages[index])
            total += self._tokens[id(item)]
        return total

    def select(self, messages: Sequence[Message]) -> Selected:
        self._messages = messages
        self._converted.extend(messages)
        trimmed = self._trim(
            self._converted.items,
            max_tokens=self._budget,
            token_counter=self._count,
            strategy="last",
            include_system=True,
            start_on="human",
        )
        indexes = [self._converted.indexes[id(item)] for item in trimmed]
        return [(messages[index], index) for index in indexes]


class LangchainClear:
    """`ClearToolUsesEdit` of langchain: above the budget, all but the last three tool results are cleared."""

    def __init__(self, budget: int) -> None:
        convert = import_module("langchain_core.messages").convert_to_messages
        self._converted = _Converted(lambda message, _: convert([message])[0])
        self._count = import_module("langchain_core.messages.utils").count_tokens_approximately
        editing = import_module("langchain.agents.middleware.context_editing")
        self._edit = editing.ClearToolUsesEdit(trigger=budget, keep=3)
        self._cleared: dict[int, Message] = {}

    def select(self, messages: Sequence[Message]) -> Selected:
        self._converted.extend(messages)
        edited = list(self._converted.items)
        self._edit.apply(edited, count_tokens=self._count)
        selected: Selected = []
        for index, (before, after) in enumerate(zip(self._converted.items, edited, strict=True)):
            message = messages[index]
            if before is not after:
                message = self._cleared.setdefault(index, {**message, "content": after.content})
            selected.append((message, index))
        return selected


class LlamaIndexBuffer:
    """`ChatMemoryBuffer` of llama-index: the last messages that fit, by their text."""

    def __init__(self, budget: int) -> None:
        memory = import_module("llama_index.core.memory").ChatMemoryBuffer
        chat_message = import_module("llama_index.core.llms").ChatMessage
        # The buffer counts the joined text of all messages again for every message that it leaves out. Counted line by line
        # with a cache, that takes milliseconds instead of seconds, and the sum is almost the same.
        count = cache(counter_for(None).count)

        def count_lines(text: str) -> range:
            lines = text.split("\n")
            return range(sum(map(count, lines)) + len(lines) - 1)

        self._memory = memory.from_defaults(token_limit=budget, tokenizer_fn=count_lines)

        def convert(message: Message, index: int) -> Any:
            calls = {key: message[key] for key in ("tool_calls", "tool_call_id") if key in message}
            return chat_message(
                role=message["role"], content=message["content"], additional_kwargs={"index": index, **calls}
            )

        self._converted = _Converted(convert)

    def select(self, messages: Sequence[Message]) -> Selected:
        for item in self._converted.extend(messages):
            self._memory.put(item)
        indexes = [item.additional_kwargs["index"] for item in self._memory.get()]
        return [(messages[index], index) for index in indexes]


class StrandsWindow:
    """`SlidingWindowConversationManager` of strands: the last messages. The system prompt is not among them."""

    def __init__(self, _budget: int) -> None:
        managers = import_module("strands.agent.conversation_manager")
        self._manager = managers.SlidingWindowConversationManager(window_size=WINDOW)
        self._agent = SimpleNamespace(messages=[])
        self._sources: dict[int, list[int]] = {}
        """id of a message of the agent → the indexes of the messages that it was made of."""
        self._all: list[Any] = []
        """Keeps the messages alive."""
        self._length = 0

    def select(self, messages: Sequence[Message]) -> Selected:
        for index in range(self._length, len(messages)):
            self._add(plain(messages[index]), index)
        self._length = len(messages)
        self._manager.apply_management(self._agent)
        indexes = [*range(leading_system_count(messages))]
        indexes += [source for item in self._agent.messages for source in self._sources[id(item)]]
        return [(messages[index], index) for index in indexes]

    def _add(self, message: Message, index: int) -> None:
        text = [{"text": message["content"]}] if message["content"] else []
        if message["role"] == "system":
            return
        if message["role"] == "tool":
            block = {"toolResult": {"toolUseId": message["tool_call_id"], "content": text, "status": "success"}}
            last = self._agent.messages[-1] if self._agent.messages else None
            if last is not None and "toolResult" in last["content"][0]:
                last["content"].append(block)
                self._sources[id(last)].append(index)
                return
            item = {"role": "user", "content": [block]}
        else:
            uses = [
                {"toolUse": {"toolUseId": call["id"], "name": call["function"]["name"], "input": {}}}
                for call in message.get("tool_calls") or ()
            ]
            item = {"role": message["role"], "content": [*text, *uses] or [{"text": " "}]}
        self._all.append(item)
        self._sources[id(item)] = [index]
        self._agent.messages.append(item)


class HeadroomCompress:
    """`compress` of headroom-ai, without its language model. Messages of the previous request are not changed again."""

    def __init__(self, budget: int) -> None:
        os.environ.setdefault("HEADROOM_OFFLINE", "1")
        self._compress = import_module("headroom").compress
        self._budget = budget
        self._sent: Selected = []

    def select(self, messages: Sequence[Message]) -> Selected:
        start = max((index for _, index in self._sent if index is not None), default=-1) + 1
        history = [*self._sent, *((messages[index], index) for index in range(start, len(messages)))]
        given = [plain(message) for message, _ in history]
        result = self._compress(
            [dict(message) for message in given],
            model="gpt-4o",
            model_limit=self._budget,
            kompress_model="disabled",
            frozen_message_count=len(self._sent),
        ).messages
        rows = dict(enumerate(history)) if len(result) == len(given) else {}
        selected: Selected = []
        at = 0
        for number, message in enumerate(result):
            if not rows:  # messages were left out: the next equal one is the same
                at = next((other for other in range(at, len(given)) if given[other] == message), len(given))
            row = rows.get(number) or (history[at] if at < len(given) else (message, None))
            is_same = message == plain(row[0])
            selected.append(row if is_same else (message, row[1]))
        self._sent = selected
        return selected


PEERS: Final[dict[str, tuple[str, dict[str, Callable[[int], Peer]]]]] = {
    "langchain": (
        "langchain",
        {
            "langchain trim_messages": partial(LangchainTrim, exact=True),
            "langchain trim_messages, approximate": partial(LangchainTrim, exact=False),
            "langchain ClearToolUsesEdit": LangchainClear,
        },
    ),
    "llama-index": ("llama-index-core", {"llama-index ChatMemoryBuffer": LlamaIndexBuffer}),
    "strands": ("strands-agents", {"strands SlidingWindow": StrandsWindow}),
    "headroom": ("headroom-ai", {"headroom compress": HeadroomCompress}),
    "window": ("", {f"last {WINDOW} messages": CountWindow}),
}
"""Peer → its package, and its policies by name."""


def peer_policies(peer: str) -> dict[str, Callable[[int], Peer]]:
    """The policies of another library.

    Raises:
        InvalidSetting: there is no such peer.
        MissingPeer: the library is not installed.
    """
    if peer not in PEERS:
        raise InvalidSetting("peer", peer, one_of(sorted(PEERS), peer))
    package, policies = PEERS[peer]
    for make in policies.values():
        try:
            make(1_000)
        except ImportError as error:
            raise MissingPeer(peer, package) from error
    return dict(policies)
