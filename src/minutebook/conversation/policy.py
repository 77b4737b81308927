"""Policies by name. A policy is a history manager, a compaction strategy, or both, with a token limit.

A name is `retention`, a policy of the configuration, a strategy or a manager. It means the same in code, in configuration
files, in the agent language (strategies only) and on the command line. Only policies with a strategy write summaries.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, Literal, Protocol, get_type_hints

from pydantic import TypeAdapter, ValidationError

from minutebook.compaction.circuit_breaker import CircuitBreaker
from minutebook.compaction.manager import CompactionManager, LoadRewinds, SaveFold
from minutebook.compaction.registry import SETTING_FIELDS, strategy_names, strategy_with_settings
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer
from minutebook.conversation.config import (
    RETENTION,
    TOKEN_BUDGET,
    ConversationConfig,
    ManagerConfig,
    Mode,
    PolicyConfig,
    RetentionConfig,
    invalid_setting,
    value_from_text,
)
from minutebook.conversation.retention import PruningDecision, RetentionManager, retention_manager
from minutebook.errors import InvalidSetting, MissingSetting, UnknownName, one_of
from minutebook.history.budget import PRESETS, TokenBudgetManager
from minutebook.history.compose import (
    ComposedManager,
    PassthroughManager,
    composed,
    name_from_class,
)
from minutebook.history.protocol import EventBus, HistoryManager
from minutebook.history.scores import BM25Scorer, Scorer
from minutebook.history.tool_calls import ActiveToolsManager, ToolStripper
from minutebook.history.tool_results import ToolResultClearer, ToolResultTruncator
from minutebook.history.window import SlidingWindowManager, TurnWindowManager
from minutebook.record.fold import Fold
from minutebook.record.transcript import Transcript
from minutebook.tokens.models import DEFAULT_TOKENS, ModelInfo

MANAGERS: Final[Mapping[str, type]] = {
    "active_tools": ActiveToolsManager,
    "passthrough": PassthroughManager,
    "sliding_window": SlidingWindowManager,
    "token_budget": TokenBudgetManager,
    "tool_result_clearer": ToolResultClearer,
    "tool_result_truncator": ToolResultTruncator,
    "tool_stripper": ToolStripper,
    "turn_window": TurnWindowManager,
    **dict.fromkeys(PRESETS, TokenBudgetManager),
}
_DEFAULT_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "sliding_window": {"window_size": 40},
    "turn_window": {"turns": 5},
    **{preset: {"preset": preset} for preset in PRESETS},
}
"""Values of settings for managers that are named without them. `economy` is `token_budget` with that preset."""
_BUDGETED: Final = frozenset({RETENTION, TOKEN_BUDGET, *PRESETS})
"""Managers whose policies have a budget: by default the model's input limit."""
_ANY_MODEL: Final = ModelInfo("any")


class PolicySettings(Protocol):
    """The parts of a configuration that policies are built from."""

    @property
    def conversation(self) -> ConversationConfig: ...
    @property
    def policies(self) -> Mapping[str, PolicyConfig]: ...


@dataclass(frozen=True, slots=True)
class Policy:
    """How the messages of a request are reduced."""

    name: str
    manager: HistoryManager
    """Curates the messages of each request."""
    strategy: HistoryStrategy | None = None
    """Compacts old messages when the window gets full; None for no compaction."""
    max_tokens: int | None = None
    """Maximum tokens of messages per request; None if the policy sets no limit."""
    mode: Mode = "on"
    """In `shadow` mode all messages are sent, and what would be pruned is only logged."""
    summary_model: str | None = None
    """The model that writes summaries; None for the conversation's model."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings that `describe` returns."""
    model: ModelInfo = _ANY_MODEL
    """The model whose window the strategy uses."""
    summarizer: Summarizer | None = None
    """Writes the strategy's summaries. None: they are extracted from the messages, without a model."""
    breakers: defaultdict[str, CircuitBreaker] = field(
        default_factory=lambda: defaultdict(CircuitBreaker), repr=False, compare=False
    )
    """Tenant → the circuit breaker that counts the strategy's failures in all conversations of the tenant with this policy."""
    _description: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Cached result of `describe`: every request stores it."""

    def compaction(
        self,
        folds: Sequence[Fold] = (),
        save_fold: SaveFold | None = None,
        load_rewinds: LoadRewinds | None = None,
        *,
        bus: EventBus | None = None,
        tenant: str = "default",
    ) -> CompactionManager | None:
        """The compaction of one conversation; None if the policy has no strategy. `save_fold` stores its folds."""
        if self.strategy is None:
            return None
        model = self.model
        if self.max_tokens is not None:
            model = replace(model, max_input_tokens=min(self.max_tokens, model.max_input_tokens))
        # Compaction keeps the conversation within the policy's budget, so the manager of that budget is not needed.
        managers = [manager for manager in self._managers if not self._is_budget(manager)]
        return CompactionManager(
            self.strategy,
            model,
            self.summarizer,
            folds=folds,
            save_fold=save_fold,
            load_rewinds=load_rewinds,
            bus=bus,
            manager=composed(managers) if managers else None,
            breaker=self.breakers[tenant],
        )

    def with_overhead(self, tokens: int) -> "Policy":
        """The policy for requests that send this many tokens besides messages, such as tools. The budget includes them."""
        budget = self.max_tokens
        if not tokens or budget is None:
            return self
        managers = [
            replace(manager, reserve=min(manager.reserve + tokens, budget - 1))
            if isinstance(manager, TokenBudgetManager) and self._is_budget(manager)
            else manager
            for manager in self._managers
        ]
        return replace(self, manager=composed(managers))

    def _is_budget(self, manager: HistoryManager) -> bool:
        return isinstance(manager, TokenBudgetManager) and manager.max_tokens == self.max_tokens

    @property
    def _managers(self) -> tuple[HistoryManager, ...]:
        return self.manager.managers if isinstance(self.manager, ComposedManager) else (self.manager,)

    def decision(self, record: Transcript) -> PruningDecision | None:
        """How much retention would prune from a record in shadow mode. None in other modes and without retention."""
        retention = next((manager for manager in self._managers if isinstance(manager, RetentionManager)), None)
        return None if retention is None or self.mode != "shadow" else retention.decision(record)

    def describe(self) -> dict[str, Any]:
        """The policy as JSON data: its name, its parts and their settings. Equal policies have equal descriptions."""
        if not self._description:
            self._description.update(self._describe())
        return dict(self._description)

    def _describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "mode": self.mode,
            "strategy": None
            if self.strategy is None
            else {"name": self.strategy.name, **_json_settings(self.strategy)},
            "manager": _manager_description(self.manager),
            "max_tokens": self.max_tokens,
            "summary_model": self.summary_model,
            **self.settings,
        }


def policy_names(config: PolicySettings) -> list[str]:
    """Every name that `policy_named` accepts."""
    return sorted({RETENTION, *config.policies, *strategy_names(), *MANAGERS})


def policy_named(
    name: str,
    config: PolicySettings,
    *,
    model: ModelInfo,
    summarizer: Summarizer | None = None,
    max_tokens: int | None = None,
) -> Policy:
    """The policy with that name. `max_tokens` is the budget of a policy that sets none. Default: the model's input limit.

    If the conversation's `include_history` is off, every policy sends only the last turn.

    Raises:
        InvalidSetting: no policy has that name, or one of its settings is invalid.
        UnknownName: its strategy is not registered.
    """
    if name not in policy_names(config):
        raise _unknown_policy(name, config)
    retention = config.conversation.effective_retention
    if not config.conversation.include_history:
        return Policy(name, TurnWindowManager(1), settings={"include_history": False})
    if name == RETENTION and retention.mode == "off":
        return Policy(name, PassthroughManager(), mode="off", settings={"retention": retention.model_dump()})
    policy = config.policies.get(name) or _default_config(name)
    uses_retention = any(manager.name == RETENTION for manager in policy.manager)
    if policy.max_tokens is not None:  # it is the window of the strategy, as in `Conversation` and `minutebook compact`
        model = replace(model, max_input_tokens=policy.max_tokens)
    budget = max_tokens if policy.max_tokens is None else policy.max_tokens
    if budget is None and policy.strategy is None and {manager.name for manager in policy.manager} & _BUDGETED:
        budget = _input_limit(model)
    return Policy(
        name,
        _composed_manager(policy, budget, model, retention),
        strategy=None if policy.strategy is None else strategy_of(policy),
        max_tokens=budget,
        mode=retention.mode if uses_retention else "on",
        summary_model=policy.model,
        settings={"retention": retention.model_dump()} if name == RETENTION else {},
        model=model,
        summarizer=summarizer,
    )


def summary_model(name: str, config: PolicySettings) -> str | None:
    """The model that writes a policy's summaries; None for the conversation's model."""
    policy = config.policies.get(name)
    return None if policy is None else policy.model


def strategy_of(policy: PolicyConfig) -> HistoryStrategy:
    """The strategy of a policy with the policy's settings. The agent language builds strategies in the same way.

    Raises:
        UnknownName: the strategy is not registered.
        InvalidSetting: the strategy does not have a setting, or its value is invalid.
    """
    settings = {name: getattr(policy, name) for name in SETTING_FIELDS if getattr(policy, name) is not None}
    strategy, used_settings = strategy_with_settings(policy.strategy or "", settings)
    for name, value in settings.items():
        if name not in used_settings:
            raise InvalidSetting(name, value, f"no value, because strategy {policy.strategy} has no such setting")
    return strategy


def policy_problems(config: PolicySettings) -> Iterator[tuple[tuple[str | int, ...], InvalidSetting | UnknownName]]:
    """The problems of all policies, each with the path of its key: unknown names and invalid settings."""
    for name, policy in config.policies.items():
        try:
            if policy.strategy is not None:
                strategy_of(policy)
        except UnknownName as error:
            yield ("policies", name, "strategy"), error
        except InvalidSetting as error:
            setting_names = {field_name: setting for setting, field_name in SETTING_FIELDS.items()}
            setting = setting_names.get(error.name, error.name)
            yield ("policies", name, setting), InvalidSetting(setting, error.value, error.expected)
        for index, manager in enumerate(policy.manager):
            try:
                manager_of(manager, policy.max_tokens, _ANY_MODEL)
            except InvalidSetting as error:
                yield ("policies", name, "manager", index), error
    if config.conversation.policy not in policy_names(config):
        yield ("conversation", "policy"), _unknown_policy(config.conversation.policy, config)


def _unknown_policy(name: str, config: PolicySettings) -> InvalidSetting:
    return InvalidSetting("policy", name, one_of(policy_names(config), name))


def _default_config(name: str) -> PolicyConfig:
    """The policy of a strategy or manager with its default settings. If both have the name, it is the strategy."""
    if name in strategy_names():
        return PolicyConfig(strategy=name)
    names = (RETENTION, TOKEN_BUDGET) if name == RETENTION else (name,)
    return PolicyConfig(manager=tuple(map(ManagerConfig, names)))


def _input_limit(model: ModelInfo) -> int | None:
    """The model's input limit with room for the answer; None if the model is unknown, so that nothing is left out."""
    return None if not model.is_known and model.max_input_tokens == DEFAULT_TOKENS else model.room()


def _composed_manager(
    policy: PolicyConfig, max_tokens: int | None, model: ModelInfo, retention: RetentionConfig
) -> HistoryManager:
    configs = policy.manager or (() if policy.strategy is not None else (ManagerConfig(TOKEN_BUDGET),))
    return composed([manager_of(config, max_tokens, model, retention) for config in configs])


def manager_of(
    config: ManagerConfig, max_tokens: int | None, model: ModelInfo, retention: RetentionConfig | None = None
) -> HistoryManager:
    """The manager with that name and these settings. `max_tokens` defaults to the model's input limit.

    The `token_budget` of an unknown model has no limit and changes nothing.

    Raises:
        InvalidSetting: the manager or a setting is unknown, or a value is invalid.
    """
    if config.name == RETENTION:
        for name, value in config.settings.items():
            raise InvalidSetting(f"retention.{name}", value, "no value here; set it under conversation.retention")
        return retention_manager(retention or RetentionConfig())
    manager_class, setting_types = _manager_class(config.name)
    arguments = dict(_DEFAULT_SETTINGS.get(config.name, {}))
    for name, value in config.settings.items():
        if name not in setting_types:
            expected = one_of([*setting_types], name) if setting_types else "no settings"
            raise InvalidSetting(f"{config.name} setting", name, expected)
        arguments[name] = _valid_value(f"{config.name}.{name}", value, setting_types[name])
    limit = _input_limit(model) if max_tokens is None else max_tokens
    is_unlimited = manager_class is TokenBudgetManager and limit is None and "max_tokens" not in arguments
    if manager_class is TokenBudgetManager:
        arguments.setdefault("max_tokens", sys.maxsize if limit is None else limit)
    if manager_class is ActiveToolsManager and "active" not in arguments:
        raise InvalidSetting("active_tools.active", None, "the names of the available tools, such as [search]")
    manager: HistoryManager = manager_class(**arguments)
    return PassthroughManager() if is_unlimited else manager


def manager_from_texts(texts: Sequence[str], max_tokens: int | None) -> HistoryManager:
    """The manager that command-line texts describe; several are composed in order.

    A text is `sliding_window:window_size=20,slack=10`, or `sliding_window:20` for the first setting only. Tool names are
    joined by `+`. Without texts it is `token_budget` if there is a budget, else `passthrough`.

    Raises:
        InvalidSetting: as in `manager_of`.
        MissingSetting: `token_budget` has no budget.
    """
    configs = tuple(map(manager_config, texts)) or (
        ManagerConfig("passthrough" if max_tokens is None else TOKEN_BUDGET),
    )
    for config in configs:
        is_budget = MANAGERS.get(config.name) is TokenBudgetManager
        if is_budget and max_tokens is None and "max_tokens" not in config.settings:
            advice = f"write a number of tokens, such as {config.name}:32000"
            raise MissingSetting(f"the limit of {config.name}", advice)
    return composed([manager_of(config, max_tokens, _ANY_MODEL) for config in configs])


def manager_config(text: str) -> ManagerConfig:
    """The configuration that a command-line text describes, as in `manager_from_texts`."""
    name, _, options = text.partition(":")
    setting_types: Mapping[str, Any] = {} if name == RETENTION else _manager_class(name)[1]
    settings: dict[str, Any] = {}
    for option in options.split(",") if options else ():
        key, equals, value = option.partition("=")
        if not equals and not settings:
            key, value = next(iter(setting_types), option), option
        tool_names = [tool_name for tool_name in value.split("+") if tool_name]
        settings[key] = tool_names if key == "active" else value_from_text(value, setting_types.get(key, str))
    return ManagerConfig(name, settings)


def _manager_class(name: str) -> tuple[type, Mapping[str, Any]]:
    """A manager's class and the types of its settings, without those that text cannot express (a counter)."""
    if name not in MANAGERS:
        raise InvalidSetting("manager", name, one_of([RETENTION, *MANAGERS], name))
    manager_class = MANAGERS[name]
    # In code these may also be a callable and an object.
    types = {**get_type_hints(manager_class), "active": frozenset[str], "scorer": Literal["bm25"] | None}
    return manager_class, {
        setting.name: types[setting.name] for setting in fields(manager_class) if setting.name != "counter"
    }


def _valid_value(name: str, value: Any, expected_type: Any) -> Any:
    try:
        return TypeAdapter(expected_type).validate_python(value, strict=expected_type != frozenset[str])
    except ValidationError as error:
        raise invalid_setting(error.errors()[0], name) from None


def _manager_description(manager: HistoryManager) -> Any:
    if isinstance(manager, ComposedManager):
        return [_manager_description(part) for part in manager.managers]
    return {"name": name_from_class(manager), **_json_settings(manager)}


def _json_settings(part: object) -> dict[str, Any]:
    """The settings of a manager or strategy, without those that JSON cannot represent."""
    if not is_dataclass(part):
        return {}
    settings: dict[str, Any] = {}
    for setting in fields(part):
        value = getattr(part, setting.name)
        if isinstance(value, Scorer):
            value = "bm25" if isinstance(value, BM25Scorer) else type(value).__name__
        if isinstance(value, frozenset):
            value = sorted(value)
        if is_dataclass(value):
            value = _json_settings(value)
        if isinstance(value, (str, int, float, bool, list, dict, type(None))):
            settings[setting.name] = value
    return settings
