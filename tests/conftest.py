"""Settings of all tests: the number of Hypothesis examples."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "minutebook",
    max_examples=int(os.environ.get("MINUTEBOOK_EXAMPLES", "20")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile("minutebook")

pytest.register_assert_rewrite(
    *(
        f"minutebook.testing.contract.{part}"
        for part in ("append", "documents", "erase", "expiry", "folds", "leases", "load", "pages", "samples", "trim")
    )
)
