"""Builds the policy of a conversation from the arguments of `Conversation`."""

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

from minutebook.compaction.registry import strategy_from
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer, require_summarizer
from minutebook.conversation.config import ConversationConfig, PolicyConfig
from minutebook.conversation.policy import Policy, manager_from_texts, policy_named
from minutebook.errors import InvalidSetting, require_type
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.compose import composed, managers_in, managers_of
from minutebook.history.protocol import HistoryManager
from minutebook.history.view import lowest_limit
from minutebook.record.message import Provider
from minutebook.tokens import TokenCounter, counter_for
from minutebook.tokens.models import ModelInfo, model_info
from minutebook.wire.chat import json_bytes


class SystemTooLong(UserWarning):
    """The system message of a conversation leaves no room in its budget: its views will raise `CannotFit`."""

    def __init__(self, tokens: int, max_tokens: int) -> None:
        super().__init__(tokens, max_tokens)
        self.tokens = tokens
        self.max_tokens = max_tokens

    def __str__(self) -> str:
        return (
            f"the system message has {self.tokens:,} tokens, but a view may have {self.max_tokens:,}; "
            "shorten it or raise max_tokens"
        )


class PolicyBuilder:
    """Builds the policy of a conversation from the arguments of `Conversation`.

    Raises:
        InvalidSetting: an argument is invalid, or `name` is given together with managers or a strategy.
    """

    def __init__(
        self,
        *,
        model: str | ModelInfo | None = None,
        max_tokens: int | None = None,
        managers: HistoryManager | str | Sequence[HistoryManager | str] = (),
        strategy: HistoryStrategy | str | None = None,
        summarizer: Summarizer | None = None,
        name: str | None = None,
    ) -> None:
        if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
            raise InvalidSetting("max_tokens", max_tokens, "a number of tokens above 0, or None for the model's limit")
        require_type("policy", name, (str, NoneType), "the name of a policy")
        require_type("model", model, (str, ModelInfo, NoneType), "the name of a model, or a ModelInfo")
        if summarizer is not None:
            require_summarizer(summarizer)
        self.model = _model_of(model, max_tokens)
        self.model_name = None if model is None else self.model.name
        self.counter: TokenCounter = counter_for(self.model_name)
        self.summarizer = summarizer
        is_unlimited = max_tokens is None and self.model.max_input_tokens == sys.maxsize
        self.max_tokens = None if is_unlimited else self.model.room() if max_tokens is None else max_tokens
        if name is not None and (managers or strategy is not None):
            raise InvalidSetting("policy", name, "None, because manager or strategy is set; use one or the other")
        self.policy = (
            self._policy(_managers(managers, max_tokens), strategy) if name is None else self._named_policy(name)
        )
        self.strategy = self.policy.strategy

    @property
    def provider(self) -> Provider:
        """The provider of the model, whose rules the views satisfy."""
        return "anthropic" if self.model.provider == "anthropic" else "openai"

    def check_system(self, system: str | None) -> None:
        """Warn if a new conversation with this system message could have no view."""
        if system is None or self.max_tokens is None or len(system.encode(errors="replace")) < self.max_tokens:
            return  # a token has at least one byte, so a short text need not be counted
        tokens = self.counter.message({"role": "system", "content": system})
        if tokens >= self.max_tokens:
            warnings.warn(SystemTooLong(tokens, self.max_tokens), stacklevel=4)

    @property
    def max_view_tokens(self) -> int | None:
        """Maximum tokens of a view: the lowest limit of the policy and of its managers; None if there is none."""
        return lowest_limit(self.policy.manager, self.max_tokens, self.counter)

    def tool_tokens(self, tools: Sequence[Any]) -> int:
        """The tokens of tool definitions.

        Raises:
            InvalidSetting: they are not a list of JSON data.
        """
        expected = "a list of tool definitions as they are sent: [{'type': 'function', 'function': {...}}]"
        if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
            raise InvalidSetting("tools", tools, expected)
        try:
            return self.counter.count(json_bytes(list(tools)).decode()) if tools else 0
        except TypeError:
            raise InvalidSetting("tools", tools, expected) from None

    def add_manager(self, manager: HistoryManager) -> None:
        """Apply a manager before the others, unless there is one of its class."""
        managers = tuple(managers_in(self.policy.manager))
        if not any(isinstance(part, type(manager)) for part in managers):
            self.policy = replace(self.policy, manager=composed((manager, *managers)))

    def _named_policy(self, name: str) -> Policy:
        return policy_named(
            name, _DefaultSettings(), model=self.model, summarizer=self.summarizer, max_tokens=self.max_tokens
        )

    def _policy(self, managers: Sequence[HistoryManager], strategy: HistoryStrategy | str | None) -> Policy:
        budget = () if self.max_tokens is None else (TokenBudgetManager(self.max_tokens),)
        return Policy(
            "conversation",
            composed((*managers, *budget)),
            strategy=None if strategy is None else strategy_from(strategy),
            max_tokens=self.max_tokens,
            model=self.model,
            summarizer=self.summarizer,
        )


def _managers(
    managers: HistoryManager | str | Sequence[HistoryManager | str], max_tokens: int | None
) -> tuple[HistoryManager, ...]:
    """One manager or several. A text is a manager's name with its settings, as on the command line."""
    parts: Sequence[Any] = managers if isinstance(managers, Sequence) and not isinstance(managers, str) else (managers,)
    return managers_of([manager_from_texts([part], max_tokens) if isinstance(part, str) else part for part in parts])


class _DefaultSettings:
    """The configuration of named policies without a configuration file."""

    conversation = ConversationConfig()
    policies: Mapping[str, PolicyConfig] = {}


def _model_of(model: str | ModelInfo | None, max_tokens: int | None) -> ModelInfo:
    if isinstance(model, ModelInfo):
        return model
    if model is None:
        return ModelInfo("any", max_input_tokens=max_tokens or sys.maxsize)
    return model_info(model) if max_tokens is None else model_info(model, max_input_tokens=max_tokens)
