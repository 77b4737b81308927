"""The planned project: valid, reproducible, long, and with parallel calls."""

import json

import pytest

from minutebook.errors import InvalidSetting
from minutebook.record import is_valid
from minutebook.testing.simulator.plan_session import planned_project


@pytest.mark.parametrize("aligned", [True, False], ids=["by area", "cut anywhere"])
def test_a_project_is_valid_and_has_the_requested_length(aligned):
    project = planned_project(3, aligned=aligned)

    calls = [[call["function"]["name"] for call in message.get("tool_calls") or ()] for message in project]
    assert is_valid(project)
    assert 560 <= len(project) <= 660
    assert sum("summarize_step" in names for names in calls) == 12
    assert max(map(len, calls)) >= 3


def test_the_same_seed_gives_the_same_project_and_another_seed_another():
    assert json.dumps(planned_project(1)) == json.dumps(planned_project(1)) != json.dumps(planned_project(2))


def test_the_release_notes_contain_the_summary_of_every_step():
    project = planned_project(0, steps=4, messages=120)

    summaries = [
        json.loads(call["function"]["arguments"])["summary"]
        for message in project
        for call in message.get("tool_calls") or ()
        if call["function"]["name"] == "summarize_step"
    ]
    notes = json.dumps(project[-30:])
    assert all(json.dumps(summary)[1:-1] in notes.replace("\\\\", "\\") for summary in summaries[:3])


@pytest.mark.parametrize("settings", [{"steps": 1}, {"steps": 12, "messages": 100}], ids=str)
def test_invalid_settings_are_refused(settings):
    with pytest.raises(InvalidSetting):
        planned_project(0, **settings)
