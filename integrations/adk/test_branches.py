"""Parallel agents: each has a branch of the session and a separate record."""

import warnings

import pytest
from google.adk.agents import ParallelAgent

from integrations.adk.conftest import WINDOW, RunnerHarness, folds, log_reader, pages, recorded
from minutebook import check
from minutebook.integrations.adk.compaction import AdkCompaction
from minutebook.testing import LoopbackProvider, ScriptedModel

CREW = ["bosun", "cook"]


@pytest.fixture
def provider():
    scripts = {name: ScriptedModel(*(pages(n) for n in range(12)), f"{name} is done.") for name in CREW}
    script_of = lambda request: next(scripts[name] for name in CREW if f'"{name}"' in str(request.messages[0]))  # noqa: E731
    with LoopbackProvider(script_of, max_context_tokens=WINDOW) as provider:
        yield provider


def test_each_branch_is_recorded_completely_and_folded_separately(provider, store, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # google-adk recommends a Workflow instead
        crew = ParallelAgent(name="crew", sub_agents=[log_reader(provider.base_url, name=name) for name in CREW])
    ship = RunnerHarness(provider.base_url, AdkCompaction(store, model), agent=crew)
    ship.run("Read the whole log.")

    assert provider.problems == []
    assert not any(check(request.messages) for request in provider.requests)
    for name in CREW:
        branch = f"ship/ann/s-1//crew.{name}"
        assert [message["role"] for message in recorded(store, branch)] == [*["assistant", "tool"] * 12, "assistant"]
        assert recorded(store, branch)[-1]["content"] == f"{name} is done."
        assert folds(store, branch)
    assert recorded(store) == [{"role": "user", "content": "Read the whole log."}]
