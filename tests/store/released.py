"""Databases of released schema versions, which every later version must open: also an encrypted one, and one on Redis.

`python -m tests.store.released` writes those of the newest schema to the folder `databases`. Run it once for each new
migration, and never change the files of an earlier one.
"""

import asyncio
import json
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import redis

from minutebook.store import NewDocument, open_store
from minutebook.store.sqlite.connection import migrations
from minutebook.testing.contract.samples import summary_fold, text_entries, turns

FOLDER = Path(__file__).parent / "databases"
KEY = bytes(range(32))
"""The master key of the encrypted database."""
TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LARGE = "large " * 2_000
MINUTES = {
    "number": 7,
    "model": "gpt-4o-mini",
    "policy": {"name": "token_budget", "mode": "on", "strategy": None, "manager": {"name": "token_budget"}},
    "folds": [],
    "parts": [[0, 4]],
    "left_out": [],
    "tokens_before": 90,
    "tokens_after": 90,
}


async def fill(store):
    """Write something of everything that a database can contain."""
    await store.append(
        *("order-1", turns(3)),
        recipient="alice",
        labels={"team": "blue"},
        idempotency_key="first",
        documents=[NewDocument("note", "n", {"text": "a note"}), NewDocument("request", "7-order-1", MINUTES)],
    )
    await store.add_fold("order-1", summary_fold("summary", 0, 5))
    await store.pin("order-1", 5)
    await store.fork("order-1", "order-1-again", at=10)
    await store.append("large", text_entries(LARGE, LARGE, "東京の天気"))
    await store.append("rewound", text_entries("one", "two", "three"))
    await store.rewind("rewound", 1)
    await store.append("gone", text_entries("secret"), recipient="bob")
    await store.erase(recipient="bob", block=True)
    await store.for_tenant("other").append("order-1", text_entries("of another tenant"))


async def contents(store):
    """What a user finds in a database that `fill` has filled."""
    headers = (await store.list()).items
    found = {}
    for header in sorted(headers, key=lambda header: header.id):
        loaded = await store.load(header.id)
        found[header.id] = [
            (header.recipient, header.version, header.length, header.turns, header.requests, dict(header.labels)),
            header.created_at,
            loaded.messages,
            [(fold.start, fold.stop, fold.reason) for fold in loaded.folds],
            sorted(loaded.pins),
        ]
    found["hits"] = [
        (hit.conversation, hit.position) for hit in (await store.search('"question 1" OR 京の OR large')).items
    ]
    found["documents"] = [(await store.document(*name)).body for name in (("note", "n"), ("request", "7-order-1"))]
    found["other"] = (await store.for_tenant("other").load("order-1")).messages
    return found


def restore_postgres(url, dump):
    """Restore a dump into an empty database."""
    lines = dump.read_text(encoding="utf-8").splitlines()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DO $$ BEGIN CREATE ROLE minutebook_app NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        db.execute("GRANT minutebook_app TO CURRENT_USER")
        db.execute("\n".join(line for line in lines if not line.startswith("\\")).encode())


def restore_redis(url, dump):
    """Write the keys of a dump with the prefix of the URL."""
    server, prefix = url.split("?prefix=")
    with redis.Redis.from_url(server) as client:
        for key, value in json.loads(dump.read_text(encoding="utf-8")).items():
            name = prefix + key
            match value:
                case ["string", text]:
                    client.set(name, _bytes(text))
                case ["list", items]:
                    client.rpush(name, *map(_bytes, items))
                case ["set", items]:
                    client.sadd(name, *map(_bytes, items))
                case ["hash", items]:
                    client.hset(name, mapping={_bytes(field): _bytes(text) for field, text in items})
                case ["zset", items]:
                    client.zadd(name, {_bytes(member): score for member, score in items})


def _dump_redis(url):
    """The type and the content of each key. Bytes are written as the characters with the same numbers."""
    keys = {}
    with redis.Redis.from_url(url) as client:
        for name in sorted(client.keys()):
            kind = client.type(name).decode()
            if kind == "string":
                value = _text(client.get(name))
            elif kind == "list":
                value = list(map(_text, client.lrange(name, 0, -1)))
            elif kind == "set":
                value = sorted(map(_text, client.smembers(name)))
            elif kind == "hash":
                value = sorted([_text(field), _text(content)] for field, content in client.hgetall(name).items())
            else:
                value = [[_text(member), score] for member, score in client.zrange(name, 0, -1, withscores=True)]
            keys[name.decode()] = [kind, value]
    return json.dumps(keys, indent=0) + "\n"


def _text(content):
    return content.decode("latin-1")


def _bytes(text):
    return text.encode("latin-1")


def write_databases():
    from tests.servers import Postgres
    from tests.store.redis.servers import Server

    number = f"{migrations()[-1].number:04}"
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, key in (("sqlite", None), ("encrypted.sqlite", KEY)):
            path = Path(folder) / name
            asyncio.run(_write(f"sqlite:///{path}", key))
            (FOLDER / f"{number}.{name}").write_bytes(path.read_bytes())
        with Server(Path(folder) / "redis") as server:
            asyncio.run(_write(server.url))
            (FOLDER / f"{number}.redis.json").write_text(_dump_redis(server.url), encoding="utf-8")
    server = Postgres.make()
    try:
        asyncio.run(_write(server.url()))
        arguments = (server._programs / "pg_dump", "--inserts", "--no-owner", server.url())
        dump = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        server.remove()
    lines = [line for line in dump.splitlines() if line and not line.startswith(("--", "\\"))]
    (FOLDER / f"{number}.postgres.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")


async def _write(url, key=None):
    async with open_store(url, clock=lambda: TIME, encryption_key=key) as store:
        await fill(store)


if __name__ == "__main__":
    write_databases()
