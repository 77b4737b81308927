"""The contract, on every store."""

import pytest

from minutebook.testing import StoreContract
from tests.store.backends import BACKENDS


class TestStores(StoreContract):
    @pytest.fixture(params=sorted(BACKENDS))
    def store(self, request, tmp_path):
        return BACKENDS[request.param](tmp_path)
