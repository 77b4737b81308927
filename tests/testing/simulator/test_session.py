import json
import random
import re
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minutebook import check, counter_for
from minutebook.errors import InvalidSetting
from minutebook.testing import coding_session, coding_turns
from minutebook.testing.simulator.code_samples import FEATURES, FUNCTIONS, Feature, SampleFunction
from minutebook.testing.simulator.project import Module, Project, code_with_bug
from minutebook.testing.simulator.words import THEMES

seeds = st.integers(min_value=0, max_value=2**64)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, turns=st.integers(min_value=1, max_value=30))
def test_every_provider_accepts_every_session(seed: int, turns: int) -> None:
    session = coding_session(seed, turns)

    assert check(session, provider="openai") == []
    assert check(session, provider="anthropic") == []
    assert check(session, provider="gemini") == []


@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    assert json.dumps(coding_session(seed, 4)) == json.dumps(coding_session(seed, 4))


def test_different_seeds_give_different_sessions() -> None:
    assert len({json.dumps(coding_session(seed, 2)) for seed in range(50)}) == 50


@settings(max_examples=20, deadline=None)
@given(seed=seeds, turns=st.integers(min_value=0, max_value=12))
def test_a_shorter_session_is_a_prefix_of_a_longer_one(seed: int, turns: int) -> None:
    longer = coding_session(seed, turns + 3)

    shorter = coding_session(seed, turns)

    assert longer[: len(shorter)] == shorter


@settings(max_examples=20, deadline=None)
@given(seed=seeds, turns=st.integers(min_value=0, max_value=12))
def test_there_are_as_many_requests_as_turns_and_each_is_answered(seed: int, turns: int) -> None:
    session = coding_session(seed, turns)

    assert [message["role"] for message in session].count("user") == turns
    assert session[-1]["role"] == ("assistant" if turns else "system")
    assert not session[-1].get("tool_calls")


def test_the_default_session_has_60000_tokens_or_more() -> None:
    session = coding_session()

    tokens = sum(map(counter_for(None).message, session))

    assert 150 <= len(session) <= 300
    assert 60_000 <= tokens <= 120_000


def test_a_session_of_400_turns_is_valid() -> None:
    session = coding_session(3, turns=400)

    assert len(session) > 4000
    assert check(session, provider="anthropic") == []


def test_turns_are_yielded_one_at_a_time_without_end() -> None:
    turns = coding_turns(5)

    assert [next(turns)[0]["role"] for _ in range(4)] == ["system", "user", "user", "user"]


def test_some_steps_call_several_tools_and_some_results_are_in_another_order() -> None:
    session = coding_session()
    call_ids = [[call["id"] for call in message["tool_calls"]] for message in session if message.get("tool_calls")]
    result_ids = iter(message["tool_call_id"] for message in session if message["role"] == "tool")
    orders = [[next(result_ids) for _ in ids] for ids in call_ids]

    assert {len(ids) for ids in call_ids} >= {1, 2, 3}
    assert any(ids != order for ids, order in zip(call_ids, orders, strict=True))


@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_every_edited_file_was_read_before(seed: int) -> None:
    paths_read = set()
    for message in coding_session(seed):
        for call in message.get("tool_calls") or ():
            arguments = json.loads(call["function"]["arguments"])
            if call["function"]["name"] == "read_file":
                paths_read.add(arguments["path"])
            if call["function"]["name"] == "edit_file":
                assert arguments["path"] in paths_read


@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_a_failed_test_passes_before_the_turn_ends(seed: int) -> None:
    for turn in list(zip(range(12), coding_turns(seed), strict=False))[1:]:
        text = "\n".join(message["content"] or "" for message in turn[1])
        failed = re.search(r"^FAILED \S+::(\w+)", text, re.MULTILINE)
        if failed:
            assert re.search(rf"::{failed[1]} PASSED", text[failed.end() :])


def test_a_negative_number_of_turns_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="turns=-1"):
        coding_session(turns=-1)


def run_tests(module: Module, code: str, test: str) -> None:
    """Execute a test of the generated project with this code."""
    python_module = ModuleType(f"{module.words['package']}.{module.area}.{module.noun}")
    names = [module.words["package"], f"{module.words['package']}.{module.area}", python_module.__name__]
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update({name: ModuleType(name) for name in names} | {python_module.__name__: python_module})
    try:
        exec(compile(code, module.path, "exec"), python_module.__dict__)
        namespace: dict[str, Any] = {}
        exec(compile(test, module.test_path, "exec"), namespace)
        for name in [name for name in namespace if name.startswith("test_")]:
            namespace[name]()
    finally:
        for name, old in before.items():
            del sys.modules[name]
            sys.modules.update({} if old is None else {name: old})


@pytest.fixture(params=range(len(THEMES)), ids=[theme.package for theme in THEMES])
def project(request: pytest.FixtureRequest) -> Project:
    return next(
        project
        for project in (Project(random.Random(seed)) for seed in range(100))
        if project.theme is THEMES[request.param]
    )


@pytest.mark.parametrize("sample", FUNCTIONS, ids=lambda sample: sample.name)
def test_each_bug_fails_its_test_and_its_fix_passes(sample: SampleFunction, project: Project) -> None:
    module, head, test_head = module_and_heads(project, sample.name)
    test = f"{test_head}\n\n\n{module.fill(sample.test)}"

    run_tests(module, f"{head}\n\n\n{module.fill(sample.code)}", test)
    with pytest.raises(BaseException) as failed:  # noqa: PT011 - a failure of pytest.raises is not an Exception
        run_tests(module, f"{head}\n\n\n{module.fill(code_with_bug(sample))}", test)

    kind = module.fill(sample.report).partition(":")[0].rpartition(".")[2]
    assert type(failed.value).__name__ == (kind if kind.isidentifier() else "AssertionError")


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_each_feature_passes_its_test(feature: Feature, project: Project) -> None:
    module, head, test_head = module_and_heads(project, feature.name)

    run_tests(module, f"{head}\n\n\n{module.fill(feature.code)}", f"{test_head}\n\n\n{module.fill(feature.test)}")


def module_and_heads(project: Project, name: str) -> tuple[Module, str, str]:
    """A module, the text before its functions, and the text before its tests, which imports `name`."""
    module = project.modules[project.next_area()][0]
    code = project.text(module.path).split("\n\n\ndef ")[0]
    test = project.text(module.test_path).split("\n\n\ndef test_")[0]
    names = f"import ({module.words['Noun']}, {module.words['Noun']}Error, {module.fill(name)})"
    imports = "import csv\nimport io\nimport logging\nfrom collections.abc import Iterator\nfrom typing import Any\n"
    return module, imports + code.partition('"""\n\n')[2], re.sub(r"import \(.*?\)", names, test, flags=re.DOTALL)
