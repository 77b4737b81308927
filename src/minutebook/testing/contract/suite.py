"""The contract of every conversation store, as tests that any backend can run.

Subclass `StoreContract`, define a `store` fixture that creates a new, empty store, and let pytest collect the class:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path / "chat.db")

The tests are plain functions; they need no plugin. Each enters the store, uses it, and closes it.
"""

from minutebook.testing.contract.append import AppendContract
from minutebook.testing.contract.documents import DocumentContract
from minutebook.testing.contract.erase import EraseContract, TenantContract
from minutebook.testing.contract.expiry import ExpiryContract
from minutebook.testing.contract.folds import FoldContract, ForkContract, PurgeContract
from minutebook.testing.contract.leases import LeaseContract
from minutebook.testing.contract.load import LoadContract
from minutebook.testing.contract.pages import ListContract, TransferContract
from minutebook.testing.contract.rewind import RewindContract
from minutebook.testing.contract.search import SearchContract
from minutebook.testing.contract.trim import TrimContract


class StoreContract(
    AppendContract,
    LoadContract,
    FoldContract,
    PurgeContract,
    TrimContract,
    ForkContract,
    RewindContract,
    DocumentContract,
    LeaseContract,
    EraseContract,
    ExpiryContract,
    TenantContract,
    ListContract,
    SearchContract,
    TransferContract,
):
    """The contract of `ConversationStore` as tests. Subclass it and define a `store` fixture."""
