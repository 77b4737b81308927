import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from minutebook.conversation.requests import usage_totals
from minutebook.store.sqlite.store import SqliteStore
from minutebook.store.types import NewDocument
from minutebook.testing.contract.samples import turns
from tests.cli.conftest import Chat, OnDatabase, call


def heavy(turns: int) -> Chat:
    """A conversation whose tools say much."""
    messages: Chat = []
    for turn in range(turns):
        messages += [
            {"role": "user", "content": f"Where is order {turn}?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call(f"c{turn}", "find", json.dumps({"order": turn}))],
            },
            {"role": "tool", "tool_call_id": f"c{turn}", "content": f"parcel {turn} " * 200},
            {"role": "assistant", "content": f"Order {turn} leaves today."},
        ]
    return messages


@pytest.fixture
def full(on: OnDatabase, tmp_path: Path) -> OnDatabase:
    """A database with two conversations of alice and one of bob."""
    for recipient, chats in {"alice": {"long": heavy(6), "short": heavy(2)}, "bob": {"other": heavy(4)}}.items():
        path = tmp_path / f"{recipient}.jsonl"
        path.write_text("".join(f"{json.dumps({'id': name, 'messages': chat})}\n" for name, chat in chats.items()))
        assert on("import", path, "--recipient", recipient).exit_code == 0
    return on


def test_a_dry_run_changes_nothing_and_shows_what_would_change(full: OnDatabase) -> None:
    before = full("export", "long").stdout

    dry = full("gc", "--dry-run")

    assert dry.exit_code == 0
    assert dry.stdout.splitlines()[-1].startswith("12 messages in 2 of 3 conversations (")
    assert dry.stdout.endswith(" bytes) would be trimmed\n")
    assert full("export", "long").stdout == before


def test_gc_asks_first(full: OnDatabase) -> None:
    before = full("export", "long").stdout

    no, nobody = full("gc", stdin="n\n"), full("gc", stdin="")

    assert (no.exit_code, nobody.exit_code) == (1, 2)
    assert "Trim 12 messages in 2 of 3 conversations" in no.stderr
    assert full("export", "long").stdout == before


def test_old_payloads_are_trimmed_once_and_dialogue_stays(full: OnDatabase) -> None:
    dry = json.loads(full("gc", "--dry-run", "--json").stdout)
    done = json.loads(full("gc", "--yes", "--json").stdout)
    again = json.loads(full("gc", "--yes", "--json").stdout)

    assert done["conversations"] == dry["conversations"]
    assert {one["id"]: one["trimmed"] for one in done["conversations"]} == {"long": 8, "other": 4}
    assert done["summary"]["freed_bytes"] > 10_000
    assert (again["conversations"], again["summary"]["trimmed"]) == ([], 0)
    shown = json.loads(full("show", "long", "--all", "--json").stdout)
    assert "parcel 3 parcel 3" not in json.dumps(shown)
    assert "parcel 4 parcel 4" in json.dumps(shown)
    assert "Order 0 leaves today." in json.dumps(shown)
    assert "[trimmed: ok]" in json.dumps(shown)
    assert full("db", "check").exit_code == 0


def test_how_much_is_kept_and_of_whom_can_be_said(full: OnDatabase) -> None:
    done = json.loads(full("gc", "--yes", "--json", "--recipient", "bob", "--older-than-turns", "1").stdout)
    assert [one["id"] for one in done["conversations"]] == ["other"]
    assert done["conversations"][0]["trimmed"] == 6

    smaller = json.loads(full("gc", "--yes", "--json", "--recipient", "bob", "--keep", "name").stdout)
    assert smaller["conversations"][0]["trimmed"] == 2
    assert "[trimmed: ok]" in full("show", "other", "--all", "--json").stdout


@pytest.mark.parametrize("given", [("--keep", "name"), ("--tool-persistence", "none")], ids=str)
def test_the_two_ways_of_saying_what_is_kept_do_the_same(full: OnDatabase, given: tuple[str, str]) -> None:
    assert full("gc", "--yes", *given).exit_code == 0

    assert "[trimmed" not in full("show", "long", "--all", "--json").stdout
    assert "parcel 0 parcel 0" not in full("show", "long", "--all", "--json").stdout


def test_they_may_not_contradict_each_other(full: OnDatabase) -> None:
    result = full("gc", "--keep", "name", "--tool-persistence", "trimmed")

    assert result.exit_code == 2
    assert "--keep name means --tool-persistence none" in result.stderr


def test_what_was_trimmed_cannot_be_found_any_more(full: OnDatabase) -> None:
    assert full("search", "parcel", "--json").stdout.count("\n") == 12

    full("gc", "--yes")

    assert full("search", "parcel", "--json").stdout.count("\n") == 6


def test_an_empty_database_has_nothing_to_trim(on: OnDatabase) -> None:
    assert on("db", "init").exit_code == 0
    assert on("gc", "--yes").stdout == "0 messages in 0 of 0 conversations (0 bytes) trimmed\n"


@pytest.mark.parametrize("option", ["--vacuum", "--rewrite"])
def test_only_a_rewrite_removes_all_deleted_data(full: OnDatabase, option: str) -> None:
    assert full("gc", "--dry-run", option).exit_code == 2

    done = full("gc", "--yes", option)

    assert done.exit_code == 0
    assert ("--rewrite removes it" in done.stderr) == (option == "--vacuum")
    assert full("db", "check").exit_code == 0


@pytest.fixture
def aged(full: OnDatabase, tmp_path: Path) -> OnDatabase:
    """The same, with three more conversations whose last message is 40 days old. One has a fork with a new message."""

    async def add() -> None:
        long_ago = datetime.now(UTC) - timedelta(days=40)
        async with SqliteStore(str(tmp_path / "chat.db"), clock=lambda: long_ago) as store:
            for name in ("unused", "forked", "unused too"):
                await store.append(name, turns(1))
        async with SqliteStore(str(tmp_path / "chat.db")) as store:
            await store.fork("forked", "fork")

    asyncio.run(add())
    return full


def names(on: OnDatabase) -> set[str]:
    return {json.loads(line)["id"] for line in on("ls", "--json").stdout.splitlines()}


def test_unused_conversations_are_deleted_and_nothing_is_trimmed(aged: OnDatabase) -> None:
    before = aged("export", "long").stdout

    dry = aged("gc", "--expire-after", "30d", "--dry-run")
    assert (dry.exit_code, dry.stdout) == (0, "2 conversations with 10 messages would be deleted\n")
    assert aged("gc", "--expire-after", "30d", stdin="n\n").exit_code == 1
    assert len(names(aged)) == 7

    done = json.loads(aged("gc", "--expire-after", "30d", "--yes", "--json").stdout)

    assert done == {"summary": {"expired": 2, "messages": 10, "requests": 0, "dry_run": False}}
    assert names(aged) == {"long", "short", "other", "forked", "fork"}
    assert aged("export", "long").stdout == before
    assert aged("gc", "--expire-after", "6w", "--yes", "--vacuum").stdout == (
        "0 conversations with 0 messages deleted\n"
    )


def test_the_age_may_come_from_the_configuration(
    aged: OnDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "llm_config.yaml"
    monkeypatch.setenv("MINUTEBOOK_CONFIG", str(config))
    config.write_text("database: {tenant: default}")
    missing = aged("gc", "--expire-after", "config", "--yes")
    assert (missing.exit_code, len(names(aged))) == (2, 7)
    assert "database.expire_after is missing; set it in llm_config.yaml" in missing.stderr

    config.write_text("database: {expire_after: 30d}")

    assert aged("gc", "--expire-after", "config", "--yes").stdout == "2 conversations with 10 messages deleted\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--expire-after", "30"), "--expire-after='30': expected a time such as 30d, 12h or 90m"),
        (("--expire-after", "30d", "--keep", "name"), "--expire-after does not trim; leave out --keep."),
        (("--expire-after", "30d", "--recipient", "bob"), "--expire-after does not trim; leave out --recipient."),
        (("--expire-after", "30d", "--vacuum", "--dry-run"), "--vacuum cannot be combined with --dry-run."),
    ],
    ids=str,
)
def test_a_wrong_use_of_expiry_changes_nothing(aged: OnDatabase, options: tuple[str, ...], problem: str) -> None:
    result = aged("gc", *options)

    assert result.exit_code == 2
    assert problem in result.stderr
    assert len(names(aged)) == 7


def test_minutes_of_old_requests_are_removed_and_their_usage_stays(on: OnDatabase, tmp_path: Path) -> None:
    body = {"number": 1, "model": "m", "asked_at": "2026-01-01T00:00:00+00:00", "usage": {"prompt_tokens": 5}}

    async def fill() -> None:
        for days, name in ((40, "old"), (1, "new")):
            at = datetime.now(UTC) - timedelta(days=days)
            async with SqliteStore(str(tmp_path / "chat.db"), clock=lambda at=at: at) as store:
                await store.append(name, turns(1), documents=[NewDocument("request", name, body)])

    async def read() -> tuple[list[str], int]:
        async with SqliteStore(str(tmp_path / "chat.db")) as store:
            page = await store.requests_before(datetime.now(UTC))
            return [document.id for document in page.items], (await usage_totals(store))[0].requests

    asyncio.run(fill())
    dry = on("gc", "--dry-run")
    never = on("gc", "--requests-older-than", "never", "--yes")
    assert dry.stdout.splitlines()[-1] == "minutes of 1 old requests would be removed"
    assert "minutes" not in never.stdout
    assert asyncio.run(read()) == (["old", "new"], 2)

    done = on("gc", "--yes")

    assert done.stdout.splitlines()[-1] == "minutes of 1 old requests removed; their usage was added to the totals"
    assert asyncio.run(read()) == (["new"], 2)
    assert json.loads(on("gc", "--requests-older-than", "12h", "--yes", "--json").stdout)["summary"]["requests"] == 1
    assert on("gc", "--requests-older-than", "soon", "--yes").exit_code == 2
    assert asyncio.run(read()) == ([], 2)
