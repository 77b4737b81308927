"""How many round trips to PostgreSQL one completion takes, counted by a proxy between the service and the database."""

import pytest

from minutebook.testing import ScriptedModel
from tests.service.serving import served
from tests.store.postgres.test_round_trips import proxy  # noqa: F401 - a fixture

MAX_ROUND_TRIPS = 7


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_takes_at_most_7_round_trips(proxy, stream):  # noqa: F811 - the fixture
    model = ScriptedModel(otherwise="Yes.")
    counts = []
    with served(model, db=proxy.url) as server:
        client = server.client()
        for number in range(12):
            before = proxy.round_trips
            answer = client.chat.completions.create(
                model="gpt-4o-mini",
                messages=[{"role": "user", "content": f"question {number}"}],
                extra_body={"conversation": "a"},
                stream=stream,
            )
            for _ in answer if stream else ():
                pass
            counts.append(proxy.round_trips - before)

    assert max(counts[6:]) <= MAX_ROUND_TRIPS, counts  # the first ones open connections
