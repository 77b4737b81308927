"""The same commands on databases that are servers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run, rows, talk
from tests.servers import FAST, Postgres, require_postgres
from tests.store.redis.servers import Server


@pytest.fixture(scope="module", params=["postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of our own, with nothing in it."""
    if request.param == "redis":
        with Server(tmp_path_factory.mktemp("redis")) as server:
            yield server.url
        return
    require_postgres()
    server = Postgres.make(FAST)
    try:
        yield server.url()
    finally:
        server.remove()


def test_every_command_works_on_a_server(run: Run, url: str, tmp_path: Path) -> None:
    db = ("--db", url, "--tenant", "acme")
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"id": "order-17", "messages": talk(12)}))

    assert run("db", "init", *db).stdout == "the database is ready\n"
    for _ in range(2):
        assert run("import", path, *db).exit_code == 0
    assert [row["turns"] for row in rows(run("ls", "--json", *db))] == [12]
    assert len(rows(run("search", "order 1003 today", "--json", *db))) == 1
    fold = json.loads(run("compact", "order-17", "--json", *db).stdout)["folds"][0]
    assert f"folded as {fold['id']}" in run("show", "order-17", "--all", "--folded", *db).stdout
    assert run("undo", "order-17", fold["id"], *db).exit_code == 0
    assert run("fork", "order-17", "again", "--at", "5", *db).exit_code == 0
    assert run("db", "migrate", *db).stdout == "the database is up to date\n"
    assert run("db", "check", *db).stdout == "2 conversations with 54 messages checked: 0 findings\n"
    status = json.loads(run("db", "status", "--json", *db).stdout)
    assert (status["conversations"], status["entries"], status["turns"]) == (2, 54, 13)
    assert ("bytes" in status) == url.startswith("postgresql")
    assert len(run("export", "--all", *db).stdout.splitlines()) == 57
    assert run("erase", "order-17", "--yes", "--vacuum", *db).exit_code == 0
    assert rows(run("ls", "--json", *db)) == []
