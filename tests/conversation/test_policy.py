import asyncio
import json
from dataclasses import replace

import pytest

from minutebook import (
    ComposedManager,
    ModelInfo,
    PassthroughManager,
    SlidingWindowManager,
    SummarizeStrategy,
    TokenBudgetManager,
    ToolResultClearer,
    Transcript,
    TruncateStrategy,
    TurnStrategy,
    TurnWindowManager,
    model_info,
    register_strategy,
    view_of,
)
from minutebook.compaction import HybridStrategy, strategy_names, unregister_strategy
from minutebook.conversation.config import ConversationConfig, ManagerConfig, PolicyConfig, RetentionConfig
from minutebook.conversation.handle.policy_builder import PolicyBuilder
from minutebook.conversation.policy import (
    MANAGERS,
    policy_named,
    policy_names,
    policy_problems,
    summary_model,
)
from minutebook.conversation.retention import RetentionManager
from minutebook.dsl.flow_strategy import strategy_of
from minutebook.dsl.spec import CompactionSpec, HistorySpec
from minutebook.errors import InvalidSetting, UnknownName
from minutebook.service.config.schema import ServiceConfig
from tests.service.parts import turns

MODEL = ModelInfo("small", max_input_tokens=2_000, max_output_tokens=100)


def named(name, *, model=MODEL, summarizer=None, **config):
    return policy_named(name, ServiceConfig(**config), model=model, summarizer=summarizer)


def own(**settings):
    """The policy of one's own with these settings."""
    return named("mine", policies={"mine": PolicyConfig(**settings)})


class Never:
    """A summarizer that must not be asked."""

    async def summarize(self, request):
        raise AssertionError


def test_the_default_is_the_model_s_window_and_for_threads_retention_within_it():
    config = ServiceConfig().conversation

    assert (config.policy, config.threads_policy) == ("token_budget", "retention")
    assert named("token_budget", summarizer=Never()).manager == TokenBudgetManager(2_000)
    assert named("retention", summarizer=Never()).manager == ComposedManager(
        (RetentionManager(RetentionConfig()), TokenBudgetManager(2_000))
    )
    for name in ("token_budget", "retention"):
        assert named(name).compaction((), None) is None
        assert (named(name).mode, named(name).max_tokens) == ("on", 2_000)


@pytest.mark.parametrize("settings", [{"retention": RetentionConfig()}, {"history_limit": 8}])
def test_a_configuration_of_retention_makes_it_the_policy(settings):
    assert ConversationConfig(**settings).policy == "retention"
    assert ConversationConfig(**settings, policy="turns").policy == "turns"
    assert ConversationConfig(**settings, policy="turns").threads_policy == "turns"


def test_nothing_is_left_out_for_a_model_with_an_unknown_window():
    policy = named("token_budget", model=ModelInfo("unheard-of"))

    assert (policy.manager, policy.max_tokens) == (PassthroughManager(), None)


@pytest.mark.parametrize("name", ["token_budget", "retention"])
def test_the_budget_includes_what_a_request_sends_besides_messages(name):
    policy = named(name).with_overhead(300)

    assert TokenBudgetManager(2_000, reserve=300) in (policy.manager, *getattr(policy.manager, "managers", ()))
    assert named(name).with_overhead(0).manager == named(name).manager
    assert named(name).with_overhead(9_999).manager  # the view then raises CannotFit


@pytest.mark.parametrize("mode", ["off", "shadow", "on"])
def test_the_mode_is_that_of_retention(mode):
    policy = named("retention", conversation=ConversationConfig(retention=RetentionConfig(mode=mode)))

    assert policy.mode == mode
    manager = policy.manager if mode == "off" else policy.manager.managers[0]
    assert isinstance(manager, PassthroughManager if mode == "off" else RetentionManager)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("summarize", SummarizeStrategy),
        ("truncate", TruncateStrategy),
        ("turns", TurnStrategy),
        ("hybrid", HybridStrategy),
    ],
)
def test_a_strategy_by_its_name_folds_and_its_manager_changes_nothing(name, kind):
    policy = named(name)

    assert policy.strategy == kind()
    assert policy.manager == PassthroughManager()
    assert policy.compaction((), None).strategy == kind()
    assert policy.mode == "on"


@pytest.mark.parametrize("name", sorted(set(MANAGERS) - {"active_tools"}))
def test_a_manager_by_its_name_folds_nothing(name):
    policy = named(name)

    assert type(policy.manager) is MANAGERS[name]
    assert policy.compaction((), None) is None
    assert view_of(turns(3), policy.manager).messages


def test_a_registered_strategy_is_a_policy_too():
    register_strategy("mine", TruncateStrategy)
    try:
        assert named("mine").strategy == TruncateStrategy()
        assert "mine" in policy_names(ServiceConfig())
    finally:
        unregister_strategy("mine")


def test_a_policy_of_ones_own_goes_before_a_strategy_of_that_name():
    config = {"policies": {"turns": PolicyConfig(manager=(ManagerConfig("turn_window", {"turns": 2}),))}}

    assert named("turns", **config).manager == TurnWindowManager(2)


def test_settings_of_a_strategy_mean_what_they_mean_in_the_agent_language():
    said = {"trigger": 0.9, "target": 0.4, "keep_turns": 2}
    for name in ("summarize", "truncate", "hybrid"):
        meant, _ = strategy_of(HistorySpec(strategy=name), CompactionSpec(**said))
        assert own(strategy=name, **said).strategy == meant
    assert own(strategy="summarize", keep_files=3).strategy == SummarizeStrategy(recent_files=3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"strategy": "truncate", "keep_files": 3}, "truncate has no such setting"),
        ({"strategy": "summarize", "trigger": 2.0}, "a share of the window"),
        ({"manager": (ManagerConfig("token_buget"),)}, "did you mean 'token_budget'"),
        ({"manager": (ManagerConfig("token_budget", {"tarjet": 1}),)}, "did you mean 'target'"),
        ({"manager": (ManagerConfig("passthrough", {"a": 1}),)}, "expected no settings"),
        ({"manager": (ManagerConfig("token_budget", {"target": "half"}),)}, "a number"),
        ({"manager": (ManagerConfig("sliding_window", {"window_size": 2.5}),)}, "a whole number"),
        ({"manager": (ManagerConfig("sliding_window", {"window_size": -1}),)}, "a whole number, 0 or more"),
        ({"manager": (ManagerConfig("active_tools"),)}, "the names of the available tools"),
        ({"manager": (ManagerConfig("active_tools", {"active": "search"}),)}, "a list of names"),
        ({"manager": (ManagerConfig("tool_result_truncator", {"suffix": 3}),)}, "text"),
        ({"manager": (ManagerConfig("sliding_window", {"preserve_request": 1}),)}, "true or false"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(settings, said):
    with pytest.raises(InvalidSetting) as caught:
        own(**settings)
    assert said in str(caught.value)


def test_an_unknown_strategy_is_refused_with_a_suggestion():
    with pytest.raises(UnknownName, match="did you mean 'summarize'"):
        own(strategy="sumarize")


@pytest.mark.parametrize(("name", "meant"), [("retentoin", "retention"), ("token_budge", "token_budget")])
def test_an_unknown_policy_is_refused_with_a_suggestion(name, meant):
    with pytest.raises(InvalidSetting, match=f"did you mean '{meant}'"):
        named(name)


def test_managers_are_set_and_composed_in_their_order():
    policy = own(
        manager=(
            ManagerConfig("retention"),
            ManagerConfig("tool_result_clearer", {"keep": 1}),
            ManagerConfig("token_budget", {"target": 1}),
            ManagerConfig("active_tools", {"active": ["search"]}),
        ),
        max_tokens=900,
    )

    assert isinstance(policy.manager, ComposedManager)
    assert policy.manager.managers[1] == ToolResultClearer(keep=1)
    assert policy.manager.managers[2] == TokenBudgetManager(900, target=1.0)
    assert policy.manager.managers[3].active == {"search"}
    assert policy.max_tokens == 900
    assert view_of(turns(9), policy.manager, max_tokens=900).tokens <= 900


def test_a_budget_that_nobody_gave_is_what_the_model_reads():
    assert named("token_budget").manager == TokenBudgetManager(2_000)
    assert own(max_tokens=300).manager == TokenBudgetManager(300)
    assert own(manager=(ManagerConfig("token_budget", {"max_tokens": 70}),), max_tokens=90).manager.max_tokens == 70


def test_a_policy_with_retention_among_its_managers_has_its_mode():
    policy = named(
        "mine",
        conversation=ConversationConfig(retention=RetentionConfig(mode="shadow")),
        policies={"mine": PolicyConfig(manager=(ManagerConfig("retention"),), strategy="truncate")},
    )

    assert policy.mode == "shadow"
    assert policy.strategy == TruncateStrategy()


def test_without_history_only_the_turn_that_is_answered_is_sent():
    for name in ("retention", "summarize", "sliding_window"):
        policy = named(name, conversation=ConversationConfig(include_history=False))

        assert view_of(turns(3), policy.manager).messages == turns(3)[8:]
        assert policy.compaction((), None) is None


def test_the_model_of_summaries_is_known_before_the_policy_is_made():
    config = ServiceConfig(policies={"mine": PolicyConfig(strategy="summarize", model="tiny")})

    assert summary_model("mine", config) == policy_named("mine", config, model=MODEL).summary_model == "tiny"
    assert summary_model("retention", config) is None
    assert summary_model("summarize", config) is None


def test_a_strategy_folds_a_long_conversation_and_keeps_its_folds():
    kept = []

    async def keep(fold):
        kept.append(fold)

    policy = own(strategy="summarize")
    manager = policy.compaction((), keep)
    record = Transcript(turns(60))

    done = asyncio.run(manager.check_and_apply(record))
    again = policy.compaction(done.folds, keep)

    assert done
    assert tuple(kept) == done.added
    assert view_of(record, policy.manager, folds=done.folds).tokens < record.tokens
    assert again.folds == done.folds


@pytest.mark.parametrize("name", ["retention", "mine", *sorted(set(MANAGERS) - {"active_tools"}), *strategy_names()])
def test_every_policy_is_described_as_json_and_equal_ones_alike(name):
    config = {"policies": {"mine": PolicyConfig(strategy="hybrid", manager=(ManagerConfig("token_budget"),))}}

    said = named(name, **config).describe()

    assert json.loads(json.dumps(said)) == said
    assert said == named(name, **config).describe()
    assert said["name"] == name
    assert said["mode"] == "on"


def test_a_description_tells_settings_apart():
    one = own(manager=(ManagerConfig("sliding_window", {"window_size": 3}),)).describe()
    other = own(manager=(ManagerConfig("sliding_window", {"window_size": 4}),)).describe()

    assert one != other
    assert one["manager"]["name"] == "sliding_window"
    assert own(manager=(ManagerConfig("sliding_window"),)).manager == SlidingWindowManager(40)


def test_a_policy_that_is_changed_is_described_as_it_is_then():
    policy = named("retention")
    policy.describe()["mode"] = "somebody's own"

    assert policy.describe()["mode"] == "on"
    assert replace(policy, mode="shadow").describe()["mode"] == "shadow"


def test_a_missing_list_of_active_tools_is_a_problem_of_the_policy_that_lacks_it():
    config = ServiceConfig(policies={"mine": PolicyConfig(manager=(ManagerConfig("active_tools"),))})

    ((location, problem),) = policy_problems(config)

    assert location == ("policies", "mine", "manager", 0)
    assert "the names of the available tools" in str(problem)


def test_max_tokens_besides_a_strategy_is_its_window_in_yaml_as_in_code_and_on_the_command_line():
    settings = ServiceConfig(policies={"long": PolicyConfig(strategy="truncate", max_tokens=1_000)})
    in_yaml = policy_named("long", settings, model=model_info("gpt-4o"))
    in_code = PolicyBuilder(model="gpt-4o", strategy="truncate", max_tokens=1_000).policy

    assert in_yaml.model.max_input_tokens == in_code.model.max_input_tokens == 1_000
    assert in_yaml.max_tokens == in_code.max_tokens == 1_000
    assert in_yaml.model.room() == model_info("gpt-4o", max_input_tokens=1_000).room()
