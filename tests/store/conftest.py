import os

import pytest

from tests.servers import shared
from tests.store.redis import servers as servers_redis


@pytest.fixture(scope="session", autouse=True)
def servers(tmp_path_factory):
    """The servers that the processes of a test run share. The last process stops them."""
    own_folder = tmp_path_factory.getbasetemp()
    shared.home = own_folder.parent if "PYTEST_XDIST_WORKER" in os.environ else own_folder
    servers_redis.SHARED.home = shared.home
    yield
    shared.leave()
    servers_redis.SHARED.release()
