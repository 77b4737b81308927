"""The cost of requests whose usage the provider reported."""

import pytest

from minutebook.service.inspector.policy import new_conversation
from minutebook.service.inspector.requests import Pricing
from minutebook.service.inspector.sources.minutes import add_recorded_requests
from minutebook.tokens.models import Prices
from tests.service.inspector.parts import session

PRICES = Prices(input=5.0, output=25.0, cache_read=0.5, cache_write=6.25)


def recorded(*usages, cut_at=None):
    """A conversation with a request for each usage. All send the whole record, except that the one at `cut_at` drops messages."""
    messages = session(8)["messages"]
    conversation = new_conversation("a", messages)
    conversation.series.pricing = Pricing(PRICES, is_known=True)
    requests = []
    for number, (sent, cached, written) in enumerate(usages, 1):
        details = {"cached_tokens": cached, **({"cache_write_tokens": written} if written else {})}
        length = 4 * number + 2
        is_cut = number == cut_at
        requests.append(
            {
                "left_out": [{"start": 1, "stop": 5, "status": "dropped", "reason": "cut"}] if is_cut else [],
                "parts": [[0, 1], [5, length]] if is_cut else [[0, length]],
                "usage": {"prompt_tokens": sent, "completion_tokens": 1, "prompt_tokens_details": details},
                "asked_at": "2026-01-01T00:00:00+00:00",
            }
        )
    add_recorded_requests(conversation, requests)
    return conversation.requests


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        ((1_000, 0, 0), 1_000 * 5.0),
        ((1_000, 600, 0), 600 * 0.5 + 400 * 5.0),
        ((1_000, 600, 300), 600 * 0.5 + 300 * 6.25 + 100 * 5.0),
    ],
)
def test_only_tokens_that_were_written_to_the_cache_have_the_price_of_writing(usage, dollars):
    assert recorded(usage)[0].cost == pytest.approx(dollars / 1e6)


def test_the_whole_history_is_not_read_from_a_cache_that_the_provider_did_not_read():
    requests = recorded((900, 0, 0), (1_800, 0, 0), (700, 0, 0), cut_at=3)

    for request in requests:
        assert request.full_cost == pytest.approx(request.record_tokens * 5.0 / 1e6)
    assert requests[2].cache_break.cost_uncut == pytest.approx(
        (1_800 + requests[2].record_tokens - requests[1].record_tokens) * 5.0 / 1e6
    )


def test_after_a_cut_the_whole_history_would_have_been_read_from_the_cache():
    requests = recorded((900, 0, 900), (1_800, 900, 900), (700, 0, 700), cut_at=3)
    before, last = requests[1].record_tokens, requests[2].record_tokens

    assert last > before
    assert requests[2].full_cost == pytest.approx((before * 0.5 + (last - before) * 6.25) / 1e6)
