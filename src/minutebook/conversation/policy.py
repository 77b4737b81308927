"""Policies by name: what chooses among the messages, what folds old ones, and how much may be sent.

A name is `retention`, one of the configuration's own policies, a strategy or a manager. It means the same in code, in a
configuration file, in the agent language (which names strategies only) and on the command line. Summaries are made by
policies that ask for a strategy, and by no other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final, Protocol, get_type_hints

from pydantic import TypeAdapter, ValidationError

from minutebook.compaction.manager import CompactionManager, KeepFold
from minutebook.compaction.registry import FIELDS, strategy_for, strategy_names
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer
from minutebook.conversation.config import (
    DEFAULT_POLICY,
    ConversationConfig,
    ManagerConfig,
    Mode,
    PolicyConfig,
    RetentionConfig,
    invalid_setting,
    value_from_text,
)
from minutebook.conversation.retention import PruningDecision, RetentionManager, retention_manager
from minutebook.errors import InvalidSetting, UnknownName, one_of
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.compose import ComposedManager, PassthroughManager, strategy_name
from minutebook.history.protocol import EventBus, HistoryManager
from minutebook.history.tool_calls import ActiveToolsManager, ToolStripper
from minutebook.history.tool_results import ToolResultClearer, ToolResultTruncator
from minutebook.history.window import SlidingWindowManager, TurnWindowManager
from minutebook.record.fold import Fold
from minutebook.record.transcript import Transcript
from minutebook.tokens.models import ModelInfo

MANAGERS: Final[Mapping[str, type]] = {
    "active_tools": ActiveToolsManager,
    "passthrough": PassthroughManager,
    "sliding_window": SlidingWindowManager,
    "token_budget": TokenBudgetManager,
    "tool_result_clearer": ToolResultClearer,
    "tool_result_truncator": ToolResultTruncator,
    "tool_stripper": ToolStripper,
    "turn_window": TurnWindowManager,
}
"""Short name → manager: `sliding_window`, `token_budget`, …"""

_NEEDED: Final[Mapping[str, Mapping[str, Any]]] = {
    "sliding_window": {"window_size": 40},
    "turn_window": {"turns": 5},
}
"""What is taken where a manager is named without what it needs."""
_ANY: Final = ModelInfo("any")


class PolicySettings(Protocol):
    """The part of a configuration that policies are made from."""

    @property
    def conversation(self) -> ConversationConfig: ...
    @property
    def policies(self) -> Mapping[str, PolicyConfig]: ...


@dataclass(frozen=True, slots=True)
class Policy:
    """How the conversations of a request are kept short."""

    name: str
    manager: HistoryManager
    """Pure: messages in, messages out."""
    strategy: HistoryStrategy | None = None
    max_tokens: int | None = None
    """The most tokens of messages that a call may be sent, where the policy says it."""
    mode: Mode = "on"
    """`shadow` where nothing is to be pruned yet."""
    summary_model: str | None = None
    """Who writes its summaries; None for the conversation's own model."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What it was made from, for `describe`."""
    model: ModelInfo = _ANY
    """The model whose window the strategy looks at."""
    summarizer: Summarizer | None = None
    """What the strategy sums up with; None for extracts."""
    _described: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What `describe` answers, once it was asked: every request writes it down."""

    def compaction(
        self, folds: Sequence[Fold] = (), keep: KeepFold | None = None, *, bus: EventBus | None = None
    ) -> CompactionManager | None:
        """What folds old parts of one conversation; None where nothing is folded."""
        if self.strategy is None:
            return None
        return CompactionManager(self.strategy, self.model, self.summarizer, folds=folds, keep=keep, bus=bus)

    def decision(self, record: Transcript) -> PruningDecision | None:
        """What retention would prune of a record; None where it does prune, or is not asked."""
        managers = self.manager.managers if isinstance(self.manager, ComposedManager) else (self.manager,)
        retention = next((each for each in managers if isinstance(each, RetentionManager)), None)
        return None if retention is None or self.mode != "shadow" else retention.decision(record)

    def describe(self) -> dict[str, Any]:
        """The policy as JSON: its name, its parts and their settings. Equal policies are described alike."""
        if not self._described:
            self._described.update(self._description())
        return dict(self._described)

    def _description(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "mode": self.mode,
            "strategy": None if self.strategy is None else {"name": self.strategy.name, **_settings(self.strategy)},
            "manager": _described(self.manager),
            "max_tokens": self.max_tokens,
            "summary_model": self.summary_model,
            **self.settings,
        }


def policy_names(config: PolicySettings) -> list[str]:
    """Every name that `policy_named` knows."""
    return sorted({DEFAULT_POLICY, *config.policies, *strategy_names(), *MANAGERS})


def policy_named(
    name: str,
    config: PolicySettings,
    *,
    model: ModelInfo,
    summarizer: Summarizer | None = None,
) -> Policy:
    """The policy of that name.

    Raises:
        InvalidSetting: there is none of that name, or it cannot be set so.
        UnknownName: it asks for a strategy that nobody registered.
    """
    if name not in policy_names(config):
        raise _unknown(name, config)
    retention = config.conversation.effective_retention
    if not config.conversation.include_history:
        return Policy(name, TurnWindowManager(1), settings={"include_history": False})
    if name == DEFAULT_POLICY:
        return Policy(
            name, retention_manager(retention), mode=retention.mode, settings={"retention": retention.model_dump()}
        )
    entry = config.policies.get(name) or _plain(name)
    return Policy(
        name,
        _manager(entry, model, retention),
        None if entry.strategy is None else strategy_of(entry),
        entry.max_tokens,
        retention.mode if any(each.name == DEFAULT_POLICY for each in entry.manager) else "on",
        entry.model,
        model=model,
        summarizer=summarizer,
    )


def summary_model(name: str, config: PolicySettings) -> str | None:
    """The model that a policy wants its summaries written by, for whoever makes the summarizer."""
    entry = config.policies.get(name)
    return None if entry is None else entry.model


def strategy_of(entry: PolicyConfig) -> HistoryStrategy:
    """The strategy of a policy, set as the policy says: the same that the agent language makes of the same words.

    Raises:
        UnknownName: nobody registered it.
        InvalidSetting: it does not know a setting, or cannot be set so.
    """
    given = {name: getattr(entry, name) for name in FIELDS if getattr(entry, name) is not None}
    strategy, taken = strategy_for(entry.strategy or "", given)
    for name, value in given.items():
        if name not in taken:
            raise InvalidSetting(name, value, f"it to another strategy: {entry.strategy} has no such setting")
    return strategy


def problems_of(config: PolicySettings) -> Iterator[tuple[tuple[str | int, ...], InvalidSetting | UnknownName]]:
    """What is wrong with the policies, each with its location: names, and settings that cannot be meant."""
    for name, entry in config.policies.items():
        try:
            if entry.strategy is not None:
                strategy_of(entry)
        except UnknownName as error:
            yield ("policies", name, "strategy"), error
        except InvalidSetting as error:
            said = {inner: outer for outer, inner in FIELDS.items()}.get(error.name, error.name)
            yield ("policies", name, said), InvalidSetting(said, error.value, error.expected)
        for at, each in enumerate(entry.manager):
            try:
                manager_of(each, entry.max_tokens, _ANY)
            except InvalidSetting as error:
                yield ("policies", name, "manager", at), error
    if config.conversation.policy not in policy_names(config):
        yield ("conversation", "policy"), _unknown(config.conversation.policy, config)


def _unknown(name: str, config: PolicySettings) -> InvalidSetting:
    return InvalidSetting("policy", name, one_of(policy_names(config), name))


def _plain(name: str) -> PolicyConfig:
    """A strategy or a manager as a policy, at its defaults. Where both go by one name, it is the strategy."""
    return PolicyConfig(strategy=name) if name in strategy_names() else PolicyConfig(manager=(ManagerConfig(name),))


def _manager(entry: PolicyConfig, model: ModelInfo, retention: RetentionConfig) -> HistoryManager:
    made = [manager_of(each, entry.max_tokens, model, retention) for each in entry.manager]
    if not made and entry.strategy is None:
        made = [manager_of(ManagerConfig("token_budget"), entry.max_tokens, model)]
    if len(made) == 1:
        return made[0]
    return ComposedManager(tuple(made)) if made else PassthroughManager()


def manager_of(
    config: ManagerConfig, max_tokens: int | None, model: ModelInfo, retention: RetentionConfig | None = None
) -> HistoryManager:
    """The manager of that name with these settings; a budget is the policy's, else what the model reads.

    Raises:
        InvalidSetting: there is no such manager or no such setting, or its value cannot be meant.
    """
    if config.name == DEFAULT_POLICY:
        for name in config.settings:
            raise InvalidSetting("a setting of retention", name, "it under conversation.retention")
        return retention_manager(retention or RetentionConfig())
    kind, settings = _settings_known(config.name)
    given = dict(_NEEDED.get(config.name, {}))
    for name, value in config.settings.items():
        if name not in settings:
            expected = one_of([*settings], name) if settings else "none: it has no settings"
            raise InvalidSetting(f"a setting of {config.name}", name, expected)
        given[name] = _typed(f"{name} of {config.name}", value, settings[name])
    if kind is TokenBudgetManager:
        given.setdefault("max_tokens", model.room() if max_tokens is None else max_tokens)
    if kind is ActiveToolsManager and "active" not in given:
        raise InvalidSetting("active_tools", "without active", "it the names of the tools on offer: active: [search]")
    made: HistoryManager = kind(**given)
    return made


def manager_from_texts(texts: Sequence[str], max_tokens: int | None) -> HistoryManager:
    """The manager that these texts name, as a command line has them; several are composed in their order.

    `sliding_window:window_size=20,slack=10`, or `sliding_window:20` for the first setting alone; names of tools are joined
    by `+`. None at all is `token_budget` if there is a budget, else `passthrough`.

    Raises:
        InvalidSetting: as `manager_of`, or a budget is wanted and none is given.
    """
    named = tuple(map(_config_from_text, texts)) or (
        ManagerConfig("passthrough" if max_tokens is None else "token_budget"),
    )
    for each in named:
        if each.name == "token_budget" and max_tokens is None and "max_tokens" not in each.settings:
            raise InvalidSetting("token_budget", "without max_tokens", "it a budget, such as token_budget:32000")
    entry = PolicyConfig(manager=named, max_tokens=max_tokens)
    return _manager(entry, _ANY, RetentionConfig())


def _config_from_text(text: str) -> ManagerConfig:
    name, _, options = text.partition(":")
    settings: Mapping[str, Any] = {} if name == DEFAULT_POLICY else _settings_known(name)[1]
    given: dict[str, Any] = {}
    for part in options.split(",") if options else ():
        key, equals, value = part.partition("=")
        if not equals and not given:
            key, value = next(iter(settings), part), part
        names = [name for name in value.split("+") if name]
        given[key] = names if key == "active" else value_from_text(value, settings.get(key, str))
    return ManagerConfig(name, given)


def _settings_known(manager: str) -> tuple[type, Mapping[str, Any]]:
    """A manager's class, and its settings with their types; a counter cannot be written down."""
    if manager not in MANAGERS:
        known = [DEFAULT_POLICY, *MANAGERS]
        raise InvalidSetting("manager", manager, one_of(known, manager))
    kind = MANAGERS[manager]
    hints = {**get_type_hints(kind), "active": frozenset[str]}  # a callable cannot be written down either
    return kind, {each.name: hints[each.name] for each in fields(kind) if each.name != "counter"}


def _typed(name: str, value: Any, kind: Any) -> Any:
    try:
        return TypeAdapter(kind).validate_python(value, strict=kind != frozenset[str])
    except ValidationError as error:
        raise invalid_setting(error.errors()[0], name) from None


def _described(manager: HistoryManager) -> Any:
    if isinstance(manager, ComposedManager):
        return [_described(each) for each in manager.managers]
    return {"name": strategy_name(manager), **_settings(manager)}


def _settings(part: object) -> dict[str, Any]:
    """The settings of a manager or strategy that JSON can say."""
    if not is_dataclass(part):
        return {}
    found: dict[str, Any] = {}
    for each in fields(part):
        value = getattr(part, each.name)
        if isinstance(value, frozenset):
            value = sorted(value)
        if is_dataclass(value):
            value = _settings(value)
        if isinstance(value, (str, int, float, bool, list, dict, type(None))):
            found[each.name] = value
    return found
