"""The items of a request in a provider's format, with their tokens. Each message is counted once per session."""

from collections.abc import Hashable, Sequence

from minutebook.lab.prompt_cache import PromptItem
from minutebook.record.message import Message, Provider, is_system, leading_system_count, role_of
from minutebook.tokens import TokenCounter
from minutebook.tokens.counter import TOKENS_PER_MESSAGE
from minutebook.wire.anthropic import PROMPT_DIGEST_KEY, START_KEY, to_anthropic
from minutebook.wire.chat import json_bytes
from minutebook.wire.write import openai_messages


class PromptItems:
    """Converts views to prompt items. Messages are identified by object, so a view's messages are kept alive here."""

    def __init__(self, counter: TokenCounter, provider: Provider) -> None:
        self._counter = counter
        self._is_anthropic = provider == "anthropic"
        self._items: dict[int, tuple[Message, PromptItem]] = {}
        self._keys: dict[bytes, int] = {}

    def of(self, messages: Sequence[Message]) -> list[PromptItem]:
        if not self._is_anthropic:
            return [self._item(message) for message in messages]
        leading = leading_system_count(messages)
        groups: list[list[Message]] = [list(messages[:leading])] if leading else []
        last_role = ""
        for message in messages[leading:]:
            role = "assistant" if role_of(message) == "assistant" else "user"
            if role == last_role and START_KEY not in message:
                groups[-1].append(message)
            else:
                groups.append([message])
            last_role = role
        return [self._merged_item(group) for group in groups]

    def _merged_item(self, messages: Sequence[Message]) -> PromptItem:
        items = [self._item(message) for message in messages]
        if len(items) == 1:
            return items[0]
        keys: tuple[Hashable, ...] = tuple(item.key for item in items)
        return PromptItem(keys, sum(item.tokens for item in items) - TOKENS_PER_MESSAGE * (len(items) - 1))

    def _item(self, message: Message) -> PromptItem:
        found = self._items.get(id(message))
        if found is None:
            converted = self._anthropic(message) if self._is_anthropic else openai_messages([message])[0]
            key = self._keys.setdefault(json_bytes(converted), len(self._keys))
            found = self._items[id(message)] = (message, PromptItem(key, self._counter.message(converted)))
        return found[1]

    def _anthropic(self, message: Message) -> Message:
        plain = {key: value for key, value in message.items() if key != PROMPT_DIGEST_KEY}
        converted = to_anthropic([plain])
        if is_system(message):
            return {"role": "system", "content": converted.system}
        return converted.messages[0]
