import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minutebook.testing import LoopbackProvider, ScriptedModel
from tests.cli.conftest import PROGRAM, Chat, OnDatabase, Run, inherited, rows, stored_chats, talk

LETTERS = 1_000
OTHER = [{"role": "user", "content": "Which teas are there?"}]


def ids(result: Any) -> list[str]:
    return sorted(row["id"] for row in rows(result))


def test_an_export_imports_as_the_same_conversations(kept: OnDatabase, run: Run, tmp_path: Path) -> None:
    kept("compact", "order-17")
    kept("fork", "order-18", "again", "--at", "5")
    other = f"sqlite:///{tmp_path / 'other.db'}"

    assert kept("export", "--all", "-o", tmp_path / "all.jsonl.gz").exit_code == 0
    done = run("import", tmp_path / "all.jsonl.gz", "--db", other)

    assert done.exit_code == 0
    assert done.stderr == "imported 4 conversations with 64 messages\n"
    for name in ("order-17", "order-18", "hello", "again"):
        for how in ((), ("--folded",)):
            here = json.loads(kept("show", name, "--all", "--json", *how).stdout)
            there = json.loads(run("show", name, "--all", "--json", *how, "--db", other).stdout)
            assert (here["messages"], here["folds"]) == (there["messages"], there["folds"])


def test_export_writes_lines_to_stdout_or_to_a_file(kept: OnDatabase, tmp_path: Path) -> None:
    printed = kept("export", "order-18").stdout
    kept("export", "order-18", "-o", tmp_path / "one.jsonl")

    assert (tmp_path / "one.jsonl").read_text() == printed
    assert len(printed.splitlines()) == 10
    assert kept("export").exit_code == kept("export", "order-18", "--all").exit_code == 2


def test_a_failed_export_leaves_the_file_alone(kept: OnDatabase, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text("mine")

    assert kept("export", "nobody", "-o", tmp_path / "one.jsonl").exit_code == 3
    assert (tmp_path / "one.jsonl").read_text() == "mine"


@pytest.mark.parametrize("shape", ["export", "objects", "messages", "document"])
def test_the_same_file_imported_again_adds_nothing(
    kept: OnDatabase, on: OnDatabase, tmp_path: Path, shape: str
) -> None:
    path = tmp_path / "again.jsonl"
    path.write_text(
        {
            "export": kept("export", "order-17").stdout.replace('"order-17"', '"copy"'),
            "objects": "".join(f"{json.dumps({'messages': talk(2)})}\n" for _ in range(3)),
            "messages": "".join(f"{json.dumps(message)}\n" for message in talk(150)),
            "document": json.dumps(talk(3)),
        }[shape]
    )

    first = kept("import", path)
    before = kept("ls", "--json").stdout
    second = kept("import", path)

    assert first.exit_code == second.exit_code == 0
    counts = first.stderr.strip().removeprefix("imported ").replace(" conversations", "")
    assert second.stderr == f"imported 0 conversations with 0 messages; {counts} already existed\n"
    assert kept("ls", "--json").stdout == before


def test_ids_come_from_the_file_or_are_made_from_its_name(on: OnDatabase, tmp_path: Path) -> None:
    one, many, messages = tmp_path / "one.json", tmp_path / "many.jsonl.gz", tmp_path / "chat.log.jsonl"
    one.write_text(json.dumps(talk(1), indent=2))
    lines = [{"messages": talk(1)}, {"id": "named", "messages": talk(1)}, talk(1)]
    many.write_bytes(gzip.compress("".join(f"\n{json.dumps(line)}\n" for line in lines).encode()))
    messages.write_text("".join(f"{json.dumps(message)}\n" for message in talk(1)))

    for path in (one, many, messages):
        assert on("import", path).exit_code == 0
    assert on("import", "-", stdin=json.dumps(lines[:2])).exit_code == 0  # 'named' is the same, and there already

    assert ids(on("ls", "--json")) == ["chat.log", "many-0", "many-2", "named", "one", "stdin-0"]


def test_messages_keep_everything_they_had(on: OnDatabase) -> None:
    messages = [
        {"role": "user", "name": "bob", "content": [{"type": "text", "text": "\ud800 \0 é"}], "extra": {"a": 1}}
    ]
    on("import", "-", stdin=json.dumps({"id": "odd", "messages": messages}))

    document = json.loads(on("show", "odd", "--json").stdout)

    assert [row["message"] for row in document["messages"]] == messages


OLD_CHAT = """\
{"message":{"role":"system","content":"You know tea."},"evaluation_id":"00000000-0000-0000-0000-000000000001",\
"sequence":0,"created_at":"2026-01-01T00:00:00+00:00","provider":"anthropic","model":"claude-x"}
{"message":{"role":"user","content":"Name a tea."},"evaluation_id":"00000000-0000-0000-0000-000000000001",\
"sequence":1,"created_at":"2026-01-01T00:00:00+00:00","provider":"anthropic","model":"claude-x"}
{"message":{"role":"assistant","content":"Ass","interrupted":true},"evaluation_id":\
"00000000-0000-0000-0000-000000000001","sequence":2,"created_at":"2026-01-01T00:00:01+00:00",\
"provider":"anthropic","model":"claude-x"}
"""
"""What `minutebook chat` wrote before chats were kept in the database."""


def test_a_chat_file_of_an_earlier_version_is_imported_and_goes_on(run: Run, state: Path, tmp_path: Path) -> None:
    (tmp_path / "20260101-120000-abc123.jsonl").write_text(OLD_CHAT)

    done = run("import", tmp_path / "20260101-120000-abc123.jsonl")
    with LoopbackProvider(ScriptedModel("Sencha.")) as provider:
        answer = run("chat", "--continue", "And another?", "--base-url", provider.anthropic_url)
        request = provider.requests[-1]

    assert (done.exit_code, done.stderr) == (0, "imported 1 conversations with 3 messages\n")
    assert answer.stdout == "Sencha.\n"
    assert (request.model, request.body["system"][0]["text"]) == ("claude-x", "You know tea.")
    assert [text for _, text in stored_chats()["20260101-120000-abc123"]] == [
        *("You know tea.", "Name a tea.", "Ass"),
        *("And another?", "Sencha."),
    ]


def test_the_last_line_of_a_chat_file_may_have_been_cut_off(on: OnDatabase, tmp_path: Path) -> None:
    (tmp_path / "tea.jsonl").write_text(OLD_CHAT[:-30])

    done = on("import", tmp_path / "tea.jsonl")

    assert done.exit_code == 6
    assert done.stderr.startswith(
        f"{tmp_path / 'tea.jsonl'}: 'tea': imported with problems: the last line is incomplete"
    )
    assert [row["messages"] for row in rows(on("ls", "--json"))] == [2]


def test_a_line_of_a_chat_file_that_is_none_is_named(on: OnDatabase, tmp_path: Path) -> None:
    (tmp_path / "tea.jsonl").write_text(OLD_CHAT + "{}\n")

    done = on("import", tmp_path / "tea.jsonl")

    assert done.exit_code == 5
    assert "tea.jsonl:4: not a line of an export" in done.stderr


def test_what_does_not_fit_together_is_kept_and_said(on: OnDatabase, broken: Chat) -> None:
    lines = [{"id": "bad", "messages": broken}, {"id": "good", "messages": talk(1)}]
    result = on("import", "-", stdin="".join(f"{json.dumps(line)}\n" for line in lines))

    assert result.exit_code == 6
    assert "'bad': imported with problems: message 2: a tool call has no result ('a'); message 5" in result.stderr
    assert "'good'" not in result.stderr
    document = json.loads(on("show", "bad", "--json").stdout)
    assert [row["message"] for row in document["messages"]] == broken


def test_a_conversation_that_is_refused_does_not_stop_the_others(kept: OnDatabase) -> None:
    lines = [
        {"id": "order-18", "messages": OTHER},
        {"id": "", "messages": talk(1)},
        {"id": "x", "messages": [{"role": "wizard", "content": "Abracadabra"}]},
        {"id": "new", "messages": talk(1)},
    ]
    result = kept("import", "-", "--json", stdin="".join(f"{json.dumps(line)}\n" for line in lines))

    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert document["conversations"] == 2
    assert [told["id"] for told in document["refused"]] == ["order-18"]
    assert "the id is taken by another conversation" in document["refused"][0]["problems"][0]
    assert [part["place"] for part in document["skipped"]] == ["line 3"]
    assert ids(kept("ls", "--json")) == ["hello", "new", "order-17", "order-18", "stdin-1"]


def test_an_export_that_is_refused_in_part_is_imported_in_part(kept: OnDatabase, run: Run, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    run("import", "-", "--db", other, stdin=json.dumps({"id": "order-18", "messages": OTHER}))
    kept("export", "--all", "-o", tmp_path / "all.jsonl")

    result = run("import", tmp_path / "all.jsonl", "--db", other)

    assert result.exit_code == 1
    assert "'order-18': not imported" in result.stderr
    assert ids(run("ls", "--json", "--db", other)) == ["hello", "order-17", "order-18"]


def test_an_erased_conversation_does_not_come_back(kept: OnDatabase, tmp_path: Path) -> None:
    kept("export", "order-18", "-o", tmp_path / "one.jsonl")
    kept("erase", "order-18", "--yes")

    result = kept("import", tmp_path / "one.jsonl")

    assert result.exit_code == 1
    assert "was erased" in result.stderr


def test_a_recipient_may_be_named_for_what_is_imported(kept: OnDatabase, run: Run, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    kept("export", "order-18", "-o", tmp_path / "one.jsonl")

    run("import", tmp_path / "one.jsonl", "--recipient", "bob", "--db", other)

    assert [row["recipient"] for row in rows(run("ls", "--json", "--db", other))] == ["bob"]


def test_the_export_of_a_chat_is_recognised_in_the_same_database(run: Run, state: Path, tmp_path: Path) -> None:
    with LoopbackProvider(ScriptedModel("Sencha.", "Assam.")) as provider:
        asked = ["--base-url", provider.base_url, "-m", "gpt-4o", "--id", "tea"]
        run("chat", "Name a tea.", *asked)
        run("export", "tea", "-o", tmp_path / "tea.jsonl")
        first = run("import", tmp_path / "tea.jsonl")
        run("chat", "--continue", "And another?", *asked)
    second = run("import", tmp_path / "tea.jsonl")

    for done in (first, second):
        assert (done.exit_code, done.stderr) == (
            0,
            "imported 0 conversations with 0 messages; 1 with 2 messages already existed\n",
        )
    assert [text for _, text in stored_chats()["tea"]] == ["Name a tea.", "Sencha.", "And another?", "Assam."]


def test_problems_name_the_file_they_are_in(on: OnDatabase, broken: Chat, tmp_path: Path) -> None:
    texts = {
        "good.json": {"id": "a", "messages": talk(1)},
        "bad.json": {"id": "b", "messages": broken},
        "taken.json": {"id": "a", "messages": OTHER},
        "unknown.json": {"id": "d"},
    }
    for name, document in texts.items():
        (tmp_path / name).write_text(json.dumps(document))

    done = on("import", *(tmp_path / name for name in texts))

    lines = done.stderr.splitlines()
    assert done.exit_code == 5
    assert lines[0].startswith(f"{tmp_path / 'bad.json'}: 'b': imported with problems: ")
    assert lines[1].startswith(f"{tmp_path / 'taken.json'}: 'a': not imported: the id is taken")
    assert lines[2] == f"imported 2 conversations with {len(talk(1)) + len(broken)} messages"
    assert lines[3].startswith(f"error: {tmp_path / 'unknown.json'}: is in no known format")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense", "log.jsonl: is in no known format"),
        ('{"conversation": {"format": 99}}\n', "log.jsonl:1: not a line of an export"),
        ('{HEAD}\n{"entry": 3}\n', "log.jsonl:2: not a line of an export"),
        ('{HEAD}\n{HEAD}\n\n{"spoon": 3}\n', "log.jsonl:4: unknown kind of line 'spoon'"),
    ],
    ids=["nonsense", "format", "entry", "kind"],
)
def test_what_cannot_be_read_ends_with_5_and_the_line(on: OnDatabase, tmp_path: Path, text: str, problem: str) -> None:
    header = {"format": 1, "id": "a", "recipient": "a", "status": "idle", "labels": {}}
    head = json.dumps({"conversation": {**header, "created_at": "2026-01-01T00:00:00+00:00"}})
    path = tmp_path / "log.jsonl"
    path.write_text(text.replace("{HEAD}", head))

    result = on("import", path)

    assert result.exit_code == 5
    assert problem in result.stderr


def test_a_message_that_cannot_be_stored_is_refused_and_a_line_that_is_none_is_skipped(on: OnDatabase) -> None:
    message = '{"role": "user", "content": "a"}\n'

    wizard = on("import", "-", stdin=message + '{"role": "wizard", "content": "b"}\n')
    no_message = on("import", "-", stdin=message + "[]\n")

    assert (wizard.exit_code, no_message.exit_code) == (1, 6)
    assert "'stdin': not imported: message 1: role 'wizard' is unknown" in wizard.stderr
    assert "skipped stdin: line 2: " in no_message.stderr


def test_a_missing_file_makes_no_conversation(on: OnDatabase) -> None:
    assert on("import", "nowhere.jsonl").exit_code == 3


def written(path: Path, megabytes: int) -> Path:
    """An export of about that size."""
    said = "tea " * (LETTERS // 4)
    pair = [{"role": "user", "content": said}, {"role": "assistant", "content": said}]
    head = {"format": 1, "id": "a", "recipient": "a", "status": "idle", "labels": {}}
    stamp = {"created_at": "2026-01-01T00:00:00+00:00"}
    meta = {"evaluation_id": "00000000-0000-0000-0000-000000000000", "sequence": 0, **stamp}
    line = "".join(f"{json.dumps({'entry': {'message': message, **meta}})}\n" for message in pair)
    with path.open("w") as out:
        out.write(json.dumps({"conversation": {**head, **stamp}}) + "\n")
        for _ in range(megabytes * 1_000_000 // len(line)):
            out.write(line)
    return path


def most_memory(path: Path, url: str) -> int:
    """The most memory, in bytes, that importing a file took.

    Asked of the kernel: what `resource` tells may be the memory of whoever started the process.
    """
    code = (
        "import sys\nfrom minutebook.cli.main import cli\n"
        "try: cli(sys.argv[1:])\nexcept SystemExit as end: assert not end.code\n"
        "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    arguments = [sys.executable, "-c", code, "import", str(path), "--db", url]
    done = subprocess.run(arguments, capture_output=True, check=True, text=True, env=inherited())
    return int(done.stdout) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells how much memory a process had")
@pytest.mark.slow
def test_a_large_export_takes_no_more_memory_than_a_small_one(tmp_path: Path) -> None:
    small, large = written(tmp_path / "small.jsonl", 4), written(tmp_path / "large.jsonl", 34)

    less = most_memory(small, f"sqlite:///{tmp_path / 'small.db'}")
    more = most_memory(large, f"sqlite:///{tmp_path / 'large.db'}")

    assert more - less < 10_000_000


@pytest.mark.slow  # interrupts a process
def test_an_interrupted_import_says_how_to_continue_and_continues(run: Run, tmp_path: Path) -> None:
    first, second, database = tmp_path / "first.jsonl", tmp_path / "second.jsonl", tmp_path / "chat.db"
    first.write_text("".join(f"{json.dumps({'id': f'c{number}', 'messages': talk(1)})}\n" for number in range(5)))
    os.mkfifo(second)
    # A shell has its background jobs ignore interrupts, and child processes inherit that.
    restore = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{restore}; {PROGRAM[-1]}", "import", str(first), str(second), "--db", str(database)],
        stderr=subprocess.PIPE,
        env=inherited(),
        text=True,
    ) as command:
        with second.open("w"):  # waits until the command has opened it, which is after the first file
            command.send_signal(signal.SIGINT)
            stored, advice = (command.stderr or sys.stdin).read().splitlines()

    assert command.returncode == 130
    assert stored == f"imported 5 conversations with {5 * len(talk(1))} messages"
    assert advice == "interrupted; run the same command again to import the rest"
    second.unlink()
    second.write_text(json.dumps({"id": "c5", "messages": talk(1)}))
    again = json.loads(run("import", first, second, "--db", database, "--json").stdout)
    assert (again["conversations"], again["existing_conversations"]) == (1, 5)
    assert json.loads(run("db", "check", "--db", database, "--json").stdout)["summary"]["findings"] == 0
