"""The store contract on PostgreSQL through pgbouncer in transaction mode, where clients share sessions.

Skipped if pgbouncer is not installed.
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
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")


@pytest.fixture(scope="module")
def bouncer():
    """The port of a pgbouncer for the PostgreSQL of the tests."""
    require_postgres()
    options = conninfo_to_dict(shared.url())
    port = _free_port()
    server = {"host": options.get("host", "127.0.0.1"), "server": options["port"]}
    with tempfile.TemporaryDirectory(prefix="minutebook-") as folder:
        Path(folder).chmod(0o755)  # the user of the process must be able to read it
        file = Path(folder) / "pgbouncer.ini"
        file.write_text(CONFIGURATION.format(port=port, user=options.get("user", "postgres"), **server))
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


def pooled_url(port):
    """The URL of an empty database through pgbouncer."""
    name = conninfo_to_dict(shared.empty())["dbname"]
    return f"postgresql://anybody@127.0.0.1:{port}/{name}"


@pytest.mark.slow
class TestThroughPgbouncer(StoreContract):
    @pytest.fixture
    def store(self, bouncer):
        return open_store(pooled_url(bouncer))


def test_no_append_of_stores_that_share_few_sessions_is_lost(bouncer):
    async def scenario():
        url = pooled_url(bouncer)
        stores = [open_store(url) for _ in range(6)]
        for store in stores:
            await store.append("a", text_entries("begin"))
        await asyncio.gather(*(store.append("a", text_entries(f"{n}")) for n in range(20) for store in stores))
        stored = texts((await stores[0].load("a")).entries)
        for store in stores:
            await store.close()
        return stored

    assert sorted(asyncio.run(scenario())) == sorted([*["begin"] * 6, *[f"{n}" for n in range(20)] * 6])
