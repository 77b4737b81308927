import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import OnDatabase, rows


def seen(on: OnDatabase, name: str) -> Any:
    """What a model would be sent of a conversation, and of which folds."""
    return json.loads(on("show", name, "--all", "--folded", "--json").stdout)


def test_compact_sums_up_all_but_the_last_three_turns_and_undo_takes_it_back(kept: OnDatabase) -> None:
    before = seen(kept, "order-17")

    done = kept("compact", "order-17")
    fold = seen(kept, "order-17")["folds"][0]

    assert done.exit_code == 0
    assert f"messages 1-36 folded as {fold['id']}: 9 turns summarized" in done.stdout
    assert "tokens  " in done.stdout
    assert f"revert with: minutebook undo order-17 {fold['id']}" in done.stderr
    assert "no model was called" in done.stderr

    undone = kept("undo", "order-17", fold["id"])

    assert undone.stdout == f"messages 1-36 of 'order-17' are no longer folded (fold {fold['id']} was undone)\n"
    assert seen(kept, "order-17") == before


@pytest.mark.parametrize("name", ["summarize", "truncate", "turns", "hybrid"])
def test_every_strategy_folds_and_is_undone_and_folds_again(kept: OnDatabase, name: str) -> None:
    before = seen(kept, "order-17")
    for _ in range(2):
        done = kept("compact", "order-17", "--strategy", name, "--max-tokens", "1500", "--json")
        report = json.loads(done.stdout)

        assert done.exit_code == 0
        assert report["strategy"] == name
        assert report["tokens_after"] < report["tokens_before"]
        assert {fold["id"] for fold in seen(kept, "order-17")["folds"]} <= {fold["id"] for fold in report["folds"]}

        for fold in reversed(report["folds"]):
            assert kept("undo", "order-17", fold["id"]).exit_code == 0
        assert seen(kept, "order-17") == before


def test_a_second_compaction_goes_on_from_the_first(kept: OnDatabase, tmp_path: Path) -> None:
    kept("compact", "order-17")
    first = seen(kept, "order-17")

    again = kept("compact", "order-17", "--strategy", "truncate", "--max-tokens", "1100", "--json")
    report = json.loads(again.stdout)
    for fold in reversed(report["folds"]):
        kept("undo", "order-17", fold["id"])

    assert report["folds"]
    assert seen(kept, "order-17") == first


@pytest.mark.parametrize("arguments", [(), ("--strategy", "hybrid", "--max-tokens", "1500")], ids=["turns", "hybrid"])
def test_a_dry_run_says_the_same_and_changes_nothing(kept: OnDatabase, arguments: tuple[str, ...]) -> None:
    before = kept("export", "order-17").stdout

    dry = json.loads(kept("compact", "order-17", *arguments, "--dry-run", "--json").stdout)
    said = kept("compact", "order-17", *arguments, "--dry-run")

    assert kept("export", "order-17").stdout == before
    assert "would be folded" in said.stdout
    assert "undo it" not in said.stderr
    real = json.loads(kept("compact", "order-17", *arguments, "--json").stdout)
    assert [(fold["start"], fold["stop"]) for fold in dry["folds"]] == [
        (fold["start"], fold["stop"]) for fold in real["folds"]
    ]
    assert (dry["tokens_after"], dry["dry_run"]) == (real["tokens_after"], True)


def test_what_is_not_due_is_not_compacted_and_says_why(kept: OnDatabase) -> None:
    assert "folding would save no tokens" in kept("compact", "order-18").stdout
    result = kept("compact", "order-17", "--strategy", "summarize", "--model", "gpt-4o")

    assert result.exit_code == 0
    assert "not due: " in result.stdout
    assert " of 128,000 tokens are used" in result.stdout
    assert seen(kept, "order-17")["folds"] == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--max-tokens", "100"), "--max-tokens requires --strategy"),
        (("--strategy", "hybrid"), "--strategy requires --model or --max-tokens"),
        (("--strategy", "hybird", "--max-tokens", "100"), "did you mean 'hybrid'"),
        (("--strategy", "hybrid", "--model", "nobody-knows-it"), "expected a known model"),
    ],
    ids=["no strategy", "no window", "misspelt", "unknown model"],
)
def test_compact_refuses_what_cannot_be_meant(kept: OnDatabase, arguments: tuple[str, ...], problem: str) -> None:
    result = kept("compact", "order-17", *arguments)

    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.split())


def test_a_window_that_is_too_small_for_anything_is_an_error(kept: OnDatabase) -> None:
    before = kept("export", "order-17").stdout

    result = kept("compact", "order-17", "--strategy", "truncate", "--max-tokens", "10")

    assert result.exit_code == 1
    assert kept("export", "order-17").stdout == before


def test_undo_takes_the_beginning_of_an_id_and_names_the_folds_there_are(kept: OnDatabase) -> None:
    assert "has no fold 'nothing'; the conversation has no active folds" in kept("undo", "order-17", "nothing").stderr
    kept("compact", "order-17")
    fold = seen(kept, "order-17")["folds"][0]["id"]

    wrong = kept("undo", "order-17", "nothing")

    assert wrong.exit_code == 3
    assert f"active folds: {fold}" in wrong.stderr
    assert json.loads(kept("undo", "order-17", fold[:6], "--json").stdout)["id"] == fold


def test_a_fork_begins_with_what_was_there_and_a_taken_name_is_wrong_usage(kept: OnDatabase) -> None:
    result = kept("fork", "order-17", "again", "--at", "5")

    assert result.stdout == "created 'again' with 5 messages of 'order-17'\n"
    header = json.loads(kept("fork", "again", "third", "--json").stdout)
    assert header["forked_from"] == {"id": "again", "at": 5}
    assert "forked from again at 5" in kept("show", "third").stdout
    assert kept("fork", "order-17", "hello").exit_code == 2
    assert kept("fork", "order-17", "split", "--at", "3").exit_code == 2


def test_erase_asks_first(kept: OnDatabase) -> None:
    no = kept("erase", "order-17", stdin="n\n")
    nobody = kept("erase", "order-17", stdin="")

    assert (no.exit_code, nobody.exit_code) == (1, 2)
    assert "Delete conversation 'order-17' with 49 messages and all forks permanently?" in no.stderr
    assert "use --yes to confirm" in nobody.stderr
    assert kept("show", "order-17").exit_code == 0
    assert "[y/N]: \nUsage: " in nobody.stderr

    yes = kept("erase", "order-17", stdin="y\n")

    assert yes.exit_code == 0
    assert yes.stdout.startswith("deleted 1 conversations with 49 messages, 0 folds and 0 pins at ")
    gone = kept("show", "order-17")
    assert gone.exit_code == 3
    assert "was erased" in gone.stderr


def test_erasing_a_recipient_leaves_no_trace_in_the_files(kept: OnDatabase, tmp_path: Path) -> None:
    for path in tmp_path.glob("*.jsonl"):
        path.unlink()
    assert any(b"alice" in path.read_bytes() for path in tmp_path.iterdir())  # what she said is deflated

    receipt = json.loads(kept("erase", "--recipient", "alice", "--yes", "--vacuum", "--json").stdout)

    assert receipt["conversations"] == 3
    assert receipt["vacuumed"] is True
    assert rows(kept("ls", "--json")) == []
    assert not any(b"alice" in path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [(), ("a", "--recipient", "b")], ids=["none", "both"])
def test_erase_wants_one_thing_to_erase(kept: OnDatabase, arguments: tuple[str, ...]) -> None:
    assert kept("erase", "--yes", *arguments).exit_code == 2


def test_a_rewound_conversation_hides_messages_from_models_only(kept: OnDatabase) -> None:
    done = kept("rewind", "order-17", "1")

    assert done.stdout == "'order-17' continues from position 1\n"
    assert len(seen(kept, "order-17")["messages"]) == 1
    assert len(json.loads(kept("show", "order-17", "--all", "--json").stdout)["messages"]) == 49


def test_a_cleared_conversation_begins_again(kept: OnDatabase) -> None:
    done = kept("clear", "order-17")

    assert done.stdout == "'order-17' begins again; 49 messages are hidden\n"
    assert seen(kept, "order-17")["messages"] == []
    assert kept("clear", "nobody").exit_code == 3


def test_a_blocked_recipient_needs_readmit(kept: OnDatabase, tmp_path: Path) -> None:
    export = tmp_path / "one.jsonl"
    export.write_text(kept("export", "order-17").stdout.replace("order-17", "new"))
    kept("erase", "--recipient", "alice", "--block", "--yes")

    blocked = kept("import", str(export))
    readmitted = kept("readmit", "alice")

    assert blocked.exit_code != 0
    assert "'alice' was erased and is blocked" in blocked.stderr
    assert readmitted.stdout == "'alice' may start new conversations again\n"
    assert kept("readmit", "alice").stdout == "'alice' was not blocked\n"
    assert kept("import", str(export)).exit_code == 0
    assert kept("erase", "new", "--block", "--yes").exit_code == 2


def test_erase_removes_conversations_that_are_old(kept: OnDatabase, tmp_path: Path) -> None:
    header, *lines = kept("export", "order-17").stdout.splitlines()
    old = re.sub(r"\d{4}(-\d\d-\d\dT)", r"2020\1", header.replace("order-17", "old"))
    export = tmp_path / "old.jsonl"
    export.write_text("\n".join([old, *lines]))
    assert kept("import", str(export)).exit_code == 0

    planned = json.loads(kept("erase", "--older-than", "365d", "--dry-run", "--json").stdout)
    receipt = json.loads(kept("erase", "--older-than", "365d", "--yes", "--json").stdout)

    assert (planned["conversations"], receipt["conversations"], receipt["entries"]) == (1, 1, 49)
    assert "was erased" in kept("show", "old").stderr
    assert kept("show", "order-17").exit_code == 0
