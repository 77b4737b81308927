"""Calibration: within a tenth of the provider's figures after three calls, and still when nothing changes."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.errors import InvalidSetting
from minutebook.tokens import CalibratedCounter, EstimatedCounter, ExactCounter, TokenCounter
from tests.tokens.corpus import conversations

Series = list[tuple[int, int]]

RECORDED: dict[str, Series] = {
    "deepseek-chat": [
        (1160, 1528), (1271, 1673), (3288, 3778), (4312, 4875), (4410, 5009), (6096, 6759), (7142, 7870), (7708, 8452),
        (8187, 8982), (8425, 9267), (10491, 11798), (18601, 20475), (26409, 28679), (32428, 35121), (39466, 42805),
    ],
    "deepseek-reasoner": [
        (1579, 2036), (1896, 2461), (2044, 2726), (2124, 2854), (2306, 3169), (2404, 3312), (2562, 3538), (2774, 3801),
        (2841, 4064), (3027, 4314),
    ],
}  # fmt: skip
"""What o200k_base counted and what the provider reported, call by call, in two recorded sessions."""


def errors(series: Series, start: CalibratedCounter) -> tuple[list[float], int]:
    """How far off each prediction was from the fourth call on, and how often the counter next_counter."""
    counter, deviations, changes = start, [], 0
    for number, (inner, reported) in enumerate(series):
        counted = round(inner * counter.correction)
        if number >= 3:
            deviations.append((counted + counter.overhead) / reported - 1)
        next_counter = counter.observe(counted, reported)
        changes += next_counter is not counter
        counter = next_counter
    return deviations, changes


def calibrated(tolerance: float = 0.03) -> CalibratedCounter:
    return CalibratedCounter(ExactCounter(), tolerance=tolerance)


@pytest.mark.parametrize("model", RECORDED)
def test_recorded_usage_is_met_within_a_tenth_after_three_calls(model: str) -> None:
    deviations, _ = errors(RECORDED[model], calibrated())

    assert max(map(abs, deviations)) <= 0.1


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.2, 1.38, 1.55, 1.63, 1.9, 2.5, 3.4])
@pytest.mark.parametrize("overhead", [0, 300, 4_000, 20_000])
def test_a_wrong_vocabulary_and_unseen_tools_are_met_within_a_tenth_after_three_calls(
    factor: float, overhead: int
) -> None:
    growing = [150, 900, 1_700, 4_100, 4_500, 9_000, 22_000, 23_000, 60_000, 64_000, 130_000]
    cut = [30_000, 33_000, 50_000]
    series = [(counted, round(overhead + factor * counted)) for counted in growing + cut]

    deviations, _ = errors(series, calibrated())

    assert max(map(abs, deviations)) <= 0.1


def test_one_report_already_corrects() -> None:
    counter = calibrated().observe(1_000, 1_630)

    assert counter.correction == pytest.approx(1.63)
    assert counter.overhead == 0


def test_a_ratio_beyond_any_vocabulary_is_overhead() -> None:
    counter = calibrated().observe(100, 10_100)

    assert counter.correction == 2.0
    assert counter.overhead == 9_900


def test_a_report_within_tolerance_changes_nothing() -> None:
    counter = calibrated().observe(1_000, 1_500)

    assert counter.observe(3_000, 3_080) is counter
    assert counter.observe(3_000, 2_920) is counter
    assert counter.observe(3_000, 3_200) is not counter


@pytest.mark.parametrize("model", RECORDED)
def test_the_counter_changes_rarely(model: str) -> None:
    _, changes = errors(RECORDED[model], calibrated())
    _, changes_without_tolerance = errors(RECORDED[model], calibrated(tolerance=0))

    assert changes <= len(RECORDED[model]) // 2
    assert changes_without_tolerance == len(RECORDED[model])


def test_observing_does_not_change_the_counter() -> None:
    counter = calibrated()
    before = counter.count("The minutes of the last meeting"), counter.correction, counter.overhead

    counter.observe(1_000, 1_700)

    assert (counter.count("The minutes of the last meeting"), counter.correction, counter.overhead) == before


@pytest.mark.parametrize(("counted", "reported"), [(0, 100), (100, 0), (-1, 5), (0, 0)])
def test_a_report_without_tokens_is_ignored(counted: int, reported: int) -> None:
    counter = calibrated()

    assert counter.observe(counted, reported) is counter


def test_a_message_is_corrected_as_a_whole() -> None:
    counter = CalibratedCounter(ExactCounter(), 1.5)
    message = {"role": "user", "content": "The minutes of the last meeting"}

    assert ExactCounter().message(message) == 4 + 6
    assert counter.message(message) == 15
    assert counter.count("The minutes of the last meeting") == 9


@given(st.lists(st.tuples(st.integers(-5, 10**7), st.integers(-5, 10**7)), max_size=20))
def test_the_correction_stays_in_its_range_for_any_reports(series: Series) -> None:
    counter = calibrated()
    for counted, reported in series:
        counter = counter.observe(counted, reported)

        assert 0.5 <= counter.correction <= 4.0
        assert counter.overhead >= 0


@pytest.mark.parametrize(
    "setting", [{"correction": 0}, {"correction": float("nan")}, {"overhead": -1}, {"tolerance": 1}]
)
def test_settings_out_of_range_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(setting))):
        CalibratedCounter(ExactCounter(), **setting)  # type: ignore[arg-type]


def recorded(counter: TokenCounter) -> Iterator[Series]:
    """The sessions of the corpus that say what each call's prompt really cost."""
    for conversation in conversations("coding_agents"):
        reports = iter(conversation["meta"].get("prompt_tokens_per_call") or [])
        counted, series = 0, []
        for message in conversation["messages"]:
            if message["role"] == "assistant" and (reported := next(reports, None)):
                series.append((counted, reported))
            counted += counter.message(message)
        if series:
            yield series


@pytest.mark.parametrize(
    "inner", [ExactCounter("deepseek_v3"), ExactCounter("o200k_base"), EstimatedCounter()], ids=lambda inner: inner.name
)
def test_real_sessions_are_met_within_a_tenth_after_three_calls(inner: TokenCounter) -> None:
    deviations = [error for series in recorded(inner) for error in errors(series, CalibratedCounter(inner))[0]]
    share_met = sum(abs(error) <= 0.1 for error in deviations) / len(deviations)

    # What is missed are single calls early on, after a message larger than all before it.
    assert len(deviations) > 4_000
    assert share_met >= 0.995
