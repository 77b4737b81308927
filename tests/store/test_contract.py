"""The contract, on every store."""

import pytest

from minutebook.testing import StoreContract
from tests.store.backends import BACKENDS, each_backend


class TestStores(StoreContract):
    @pytest.fixture(params=each_backend("encrypted-memory", "memory", "postgres", "redis", "sqlite"))
    def store(self, request, tmp_path):
        return BACKENDS[request.param](tmp_path)
