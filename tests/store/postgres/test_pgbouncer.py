"""The contract on PostgreSQL with a pgbouncer in between, in transaction mode: no session is anybody's own.

Runs where pgbouncer is installed; elsewhere it says that it did not.
"""

import asyncio
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from minutebook.store.url import open_store
from minutebook.testing import StoreContract
from minutebook.testing.contract.samples import text_entries, texts
from tests.servers import _free_port, _user, require_postgres, shared

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
CONFIGURATION = """
[databases]
* = host={host} port={server} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
"""
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="NO PGBOUNCER: install it to test what a pooler does to sessions; nothing was tested"
)


@pytest.fixture(scope="module")
def bouncer():
    """The port of one that stands before the tests' PostgreSQL."""
    require_postgres()
    known = conninfo_to_dict(shared.url())
    port = _free_port()
    places = {"host": known.get("host", "127.0.0.1"), "server": known["port"], "user": known.get("user", "postgres")}
    with tempfile.TemporaryDirectory(prefix="minutebook-") as folder:
        Path(folder).chmod(0o755)  # whom it runs as must read it
        file = Path(folder) / "pgbouncer.ini"
        file.write_text(CONFIGURATION.format(port=port, **places))
        with subprocess.Popen([PROGRAM, "-q", file], stderr=subprocess.DEVNULL, cwd="/", **_user()) as process:
            try:
                _wait_for(port, process)
                yield port
            finally:
                process.terminate()


def _wait_for(port, process):
    until = time.monotonic() + 30
    while time.monotonic() < until:
        assert process.poll() is None, "pgbouncer did not start"
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
    raise AssertionError("pgbouncer does not answer")


def through(port):
    """The URL of an empty database, by way of the pooler."""
    name = conninfo_to_dict(shared.empty())["dbname"]
    return f"postgresql://anybody@127.0.0.1:{port}/{name}"


@pytest.mark.slow
class TestThroughPgbouncer(StoreContract):
    @pytest.fixture
    def store(self, bouncer):
        return open_store(through(bouncer))


def test_stores_that_share_few_sessions_lose_nothing(bouncer):
    async def story():
        url = through(bouncer)
        stores = [open_store(url) for _ in range(6)]
        for store in stores:
            await store.append("a", text_entries("begin"))
        await asyncio.gather(*(store.append("a", text_entries(f"{n}")) for n in range(20) for store in stores))
        found = texts((await stores[0].load("a")).entries)
        for store in stores:
            await store.close()
        return found

    found = asyncio.run(story())

    assert sorted(found) == sorted([*["begin"] * 6, *[f"{n}" for n in range(20)] * 6])
