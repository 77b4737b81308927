from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from minutebook.agent.messages import Usage
from minutebook.compaction.manager import HistoryCompacted
from minutebook.conversation.lease import RenewalCounts
from minutebook.service.observability.telemetry import MAX_LABEL_VALUES, OTHER, Metrics
from minutebook.store import StoreStatistics
from tests.service.observability.test_logs import FACT


def samples(metrics):
    """Name and labels → value, as Prometheus would read them."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_every_metric_is_counted_under_its_name():
    metrics = Metrics()
    metrics.observe_append(0.002)
    metrics.observe_lock_wait(0.1)
    metrics.observe_first_token(0.3)
    metrics.count_pruning(FACT)
    metrics.count_compaction(HistoryCompacted("turns", ("f1",), 500, 100, None, datetime.now(UTC)))
    metrics.count_usage("gpt-4o", Usage(100, 20, 60, 0, 5))
    metrics.count_unrecorded()
    metrics.count_bypass("CannotFit")
    metrics.watch_runs(lambda: 3)
    metrics.observe_request("GET", "/open", 200, 0.01)

    values = samples(metrics)
    assert values["minutebook_append_seconds_count",] == 1
    assert values["minutebook_lock_wait_seconds_sum",] == 0.1
    assert values["minutebook_first_token_seconds_count",] == 1
    assert values["minutebook_tokens_total", ("category", "record")] == 9_000
    assert values["minutebook_tokens_total", ("category", "sent")] == 1_200
    assert values["minutebook_tokens_saved_total",] == 7_800
    assert values["minutebook_compactions_total", ("strategy", "turns")] == 1
    assert values["minutebook_tokens_folded_total",] == 400
    assert values["minutebook_model_tokens_total", ("category", "cached"), ("model", "gpt-4o")] == 60
    assert values["minutebook_unrecorded_total",] == 1
    assert values["minutebook_bypassed_total", ("reason", "CannotFit")] == 1
    assert values["minutebook_active_runs",] == 3
    assert values["minutebook_http_requests_total", ("method", "GET"), ("route", "/open"), ("status", "200")] == 1


def test_the_figures_of_the_store_are_shown_if_it_has_them():
    metrics = Metrics()
    metrics.set_store(StoreStatistics(waiting_writes=2), RenewalCounts(calls=1, leases=1_000, lost=3))

    values = {name: value for (name, *_), value in samples(metrics).items()}
    assert values["minutebook_waiting_writes"] == 2
    assert values["minutebook_lease_renewals_total"] == 1
    assert values["minutebook_leases_renewed_total"] == 1_000
    assert values["minutebook_leases_lost_total"] == 3
    assert "minutebook_connections" not in values


@given(st.lists(st.text(max_size=100), max_size=200))
def test_a_label_has_a_limited_number_of_values(names):
    metrics = Metrics()
    for name in [*names, *(f"model-{number}" for number in range(60))]:
        metrics.count_usage(name, Usage(1, 1))

    models = {dict(labels)["model"] for _, *labels in samples(metrics) if labels and dict(labels).get("model")}
    assert len(models) <= MAX_LABEL_VALUES + 1
    assert OTHER in models


@pytest.mark.parametrize("name", ["sk-proj-" + "a1" * 20, "x" * 65, "two\nlines", "", '"}'])
def test_an_unusual_label_value_is_counted_as_other(name):
    metrics = Metrics()
    metrics.count_usage(name, Usage(1, 1))
    metrics.count_bypass(name)

    assert {dict(labels).get("model", OTHER) for _, *labels in samples(metrics)} == {OTHER}


def test_two_services_in_one_process_have_separate_counts():
    first, second = Metrics(), Metrics()
    first.count_unrecorded()

    assert samples(second)["minutebook_unrecorded_total",] == 0
