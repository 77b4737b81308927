import os

import pytest

from tests.servers import shared
from tests.store import servers_redis

pytest.register_assert_rewrite(
    *(
        f"minutebook.testing.contract_{part}"
        for part in ("append", "documents", "erase", "folds", "leases", "load", "pages", "parts", "trim")
    )
)


@pytest.fixture(scope="session", autouse=True)
def servers(tmp_path_factory):
    """What the processes of a test run know of the servers that they share; the last one stops them."""
    mine = tmp_path_factory.getbasetemp()
    shared.home = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine
    servers_redis.SHARED.home = shared.home
    yield
    shared.leave()
    servers_redis.SHARED.release()
