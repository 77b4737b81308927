from tests.store.conftest import servers  # noqa: F401 - the same servers, for the tests of stored conversations
