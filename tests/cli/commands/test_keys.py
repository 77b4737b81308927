import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Launch, OnDatabase

TOKEN = re.compile(r"mb_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")


def made(on: OnDatabase, *arguments: str) -> dict[str, Any]:
    result = on("keys", "create", *arguments, "--json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def listed(on: OnDatabase) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(on("keys", "list", "--json").stdout)
    return found


def test_a_new_key_is_alone_on_stdout_and_never_shown_again(on: OnDatabase) -> None:
    result = on("keys", "create", "phone-app", "--tenant", "acme")
    token = result.stdout.strip()

    assert result.exit_code == 0
    assert TOKEN.fullmatch(token)
    assert "phone-app" in result.stderr
    assert token not in result.stderr
    assert token not in on("keys", "list").output + on("keys", "list", "--json").output


def test_a_key_has_what_it_was_given(on: OnDatabase) -> None:
    made(
        on,
        *("phone", "--tenant", "acme", "--scope", "chat", "--scope", "read", "--recipient", "alice", "--days", "30"),
        *("--requests-per-minute", "600", "--tokens-per-day", "5000"),
    )
    (key,) = listed(on)

    assert (key["name"], key["tenant"], key["recipient"], key["state"]) == ("phone", "acme", "alice", "active")
    assert key["scopes"] == ["chat", "read"]
    assert (key["requests_per_minute"], key["tokens_per_day"]) == (600, 5000)
    assert key["expires_at"] is not None
    assert not {"sha256", "token"} & set(key)


def test_a_revoked_key_stays_in_the_list(on: OnDatabase) -> None:
    key = made(on, "phone")
    result = on("keys", "revoke", key["id"], "--yes")

    assert result.stdout == f"key {key['id']} (phone) is revoked; running services reject it after at most 5 s\n"
    assert [one["state"] for one in listed(on)] == ["ended"]
    assert "ended" in on("keys", "list").stdout


def test_a_rotated_key_ends_when_the_overlap_is_over(on: OnDatabase) -> None:
    old = made(on, "phone", "--tenant", "acme", "--scope", "chat")
    result = on("keys", "rotate", old["id"], "--overlap-hours", "2")
    first, second = listed(on)

    assert TOKEN.fullmatch(result.stdout.strip())
    assert f"the old key {old['id']} expires at " in result.stderr
    assert (first["state"], second["state"]) == ("ending", "active")
    assert (second["name"], second["tenant"], second["scopes"]) == ("phone", "acme", ["chat"])
    assert on("keys", "rotate", old["id"]).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("keys", "revoke", "0f3a9c1b2d4e"), 3, "'minutebook keys list' lists the keys"),
        (("keys", "rotate", "0f3a9c1b2d4e"), 3, "'minutebook keys list' lists the keys"),
        (("keys", "create", "x", "--tenant", "_minutebook"), 2, "this one is reserved for the service's API keys"),
        (("keys", "create", "x", "--scope", "all"), 2, "'all' is not one of"),
        (("keys", "create", "x", "--days", "0"), 2, "--days"),
        (("keys", "create", "x\x1b[2J"), 2, "printable"),
    ],
    ids=["revoke", "rotate", "reserved", "scope", "days", "name"],
)
def test_what_cannot_be_meant_is_refused(on: OnDatabase, arguments: tuple[str, ...], code: int, problem: str) -> None:
    made(on, "phone")
    result = on(*arguments)

    assert result.exit_code == code
    assert problem in result.stderr
    assert len(listed(on)) == 1


def test_a_database_without_keys_says_how_to_make_one(kept: OnDatabase) -> None:
    result = kept("keys", "list")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "minutebook keys create" in result.stderr


def test_every_act_is_in_the_audit_log(on: OnDatabase) -> None:
    first = made(on, "phone", "--tenant", "acme")
    on("keys", "rotate", first["id"])
    on("keys", "revoke", first["id"], "--yes")
    result = on("keys", "audit", "--json")
    log = json.loads(result.stdout)

    assert result.exit_code == 0
    assert [(act["act"], act["target"], act["tenant"]) for act in log["entries"]] == [
        (f"key.{act}", first["id"], "acme") for act in ("create", "rotate", "revoke")
    ]
    assert [line.split()[1] for line in on("keys", "audit").stdout.splitlines()] == [
        act["act"] for act in log["entries"]
    ]


def test_keys_are_no_conversations_of_anybody(on: OnDatabase) -> None:
    made(on, "phone")

    assert "keys" not in on("ls").stdout


def test_a_name_does_nothing_to_the_terminal(on: OnDatabase) -> None:
    made(on, "[bold]phone[/bold]")

    assert "[bold]phone[/bold]" in on("keys", "list").stdout


def test_a_pipe_gets_the_key_and_nothing_else(launch: Launch, tmp_path: Path) -> None:
    done = launch("keys", "create", "phone", "--db", f"sqlite:///{tmp_path / 'a.db'}")

    assert TOKEN.fullmatch(done.stdout.decode().strip())
