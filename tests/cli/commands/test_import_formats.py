"""Import of other programs' files: their compactions become folds, their branches become forks, and nothing comes twice."""

import json
from pathlib import Path
from typing import Any

import pytest

from minutebook import Conversation
from tests.cli.conftest import OnDatabase, Run, rows, talk
from tests.formats.samples import ANSWER, QUESTION, SAMPLES, as_lines

CLAUDE_CODE = [json.loads(line) for line in SAMPLES["claude code session"][1].splitlines()]
SUMMARY = "They asked for order 17, which is packed."


def line(number: int, parent: int | None, kind: str, message: dict[str, Any] | None = None, **more: Any) -> Any:
    """A line of a Claude Code session."""
    facts = {"isSidechain": False, "sessionId": "s-1", "version": "2.1.0", "timestamp": "2026-03-01T11:00:00Z"}
    parts = {"parentUuid": None if parent is None else f"u{parent}", "uuid": f"u{number}", "type": kind, **facts}
    return {**parts, **({} if message is None else {"message": message}), **more}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


COMPACTED = [
    *CLAUDE_CODE[:-1],
    line(6, None, "system", subtype="compact_boundary", logicalParentUuid="u5", compactMetadata={"trigger": "auto"}),
    line(7, 6, "user", user(SUMMARY), isCompactSummary=True, isVisibleInTranscriptOnly=True),
    line(8, 7, "user", user("Thank you.")),
]


def shown(on: OnDatabase, name: str, *options: str) -> list[str]:
    document = json.loads(on("show", name, "--all", "--json", *options).stdout)
    contents = [row["message"].get("content") for row in document["messages"]]
    return [content if isinstance(content, str) else str(content) for content in contents]


def origin(on: OnDatabase, name: str) -> tuple[str, int] | None:
    found = json.loads(on("show", name, "--json").stdout)["conversation"]["forked_from"]
    return found and (found["id"], found["at"])


def test_a_compaction_boundary_becomes_a_fold(on: OnDatabase, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(as_lines(COMPACTED))

    assert on("import", path).exit_code == 0

    record, folded = shown(on, "s-1"), shown(on, "s-1", "--folded")
    assert [QUESTION in record[0], ANSWER in record[3], "Thank you." in record[4]] == [True] * 3
    assert [SUMMARY in folded[0], "Thank you." in folded[1], len(folded)] == [True, True, 2]


def test_convert_says_that_a_summary_is_not_written(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s-1.jsonl"
    path.write_bytes(as_lines(COMPACTED))

    result = run("convert", path, "--to", "openai-chat")

    assert SUMMARY not in result.stdout
    assert "the summary of 4 messages, which are written in its place" in result.stderr


def test_a_session_that_is_compacted_again_gets_the_new_fold(on: OnDatabase, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    sizes = []
    second = [
        line(9, None, "system", subtype="compact_boundary", logicalParentUuid="u8"),
        line(10, 9, "user", user("They also said thanks."), isCompactSummary=True),
        line(11, 10, "user", user("Good night.")),
    ]
    for lines in (CLAUDE_CODE[:-1], COMPACTED, COMPACTED, [*COMPACTED, *second]):
        path.write_bytes(as_lines(lines))
        assert on("import", path).exit_code == 0
        document = json.loads(on("show", "s-1", "--all", "--json").stdout)
        sizes.append((len(document["messages"]), len(document["folds"])))

    assert sizes == [(4, 0), (5, 1), (5, 1), (6, 1)]
    assert ["They also said thanks." in shown(on, "s-1", "--folded")[0], len(shown(on, "s-1", "--folded"))] == [True, 2]


def test_an_abandoned_turn_of_a_session_becomes_a_fork(on: OnDatabase, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(as_lines([*CLAUDE_CODE[:-1], line(6, 5, "user", user("No.")), line(7, 5, "user", user("Yes."))]))

    for _ in range(2):
        assert on("import", path).exit_code == 0

    (branch,) = {row["id"] for row in rows(on("ls", "--json"))} - {"s-1"}
    assert shown(on, "s-1")[-1].count("Yes.") == 1
    assert shown(on, branch)[-1].count("No.") == 1
    assert origin(on, branch) == ("s-1", 4)


def test_a_branch_of_a_chatgpt_export_is_a_fork_also_if_the_id_is_taken(on: OnDatabase, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_bytes(SAMPLES["chatgpt export"][1])
    on("import", "-", stdin=json.dumps({"id": "chat-1", "messages": talk(1)}))

    for _ in range(2):
        assert on("import", path).exit_code == 0

    (branch,) = {row["id"] for row in rows(on("ls", "--json"))} - {"chat-1", "chatgpt-chat-1"}
    assert origin(on, "chatgpt-chat-1") is None
    assert origin(on, branch) == ("chatgpt-chat-1", 3)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database of ours with a conversation that has a fold and a recorded request, and a fork of it."""
    path = tmp_path / "chat.db"
    with Conversation("order-17", store=path, model="gpt-4o") as chat:
        chat.append(talk(8))
        chat.view()
        chat.append({"role": "assistant", "content": ANSWER})
        chat.compact("turns")
        with chat.fork("what-if", at=5):
            pass
    return path


def test_a_database_of_ours_is_read_like_any_file(run: Run, database: Path) -> None:
    before = database.read_bytes()

    seen = json.loads(run("check", database, "--json").stdout)
    converted = [json.loads(text) for text in run("convert", database, "--to", "openai-chat").stdout.splitlines()]
    view = run("view", database, "--conversation", "order-17", "--json")

    assert seen["summary"]["conversations"] == 2
    assert {value["id"]: len(value["messages"]) for value in converted} == {"order-17": 34, "what-if": 5}
    assert len(json.loads(view.stdout)["messages"]) == 34
    assert run("lab", database).exit_code == 0
    assert database.read_bytes() == before


def test_a_database_of_ours_is_imported_once(run: Run, database: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    reports = [
        json.loads(run("import", database, "--db", target, "--json").stdout) for target in (other, other, database)
    ]

    assert [report["conversations"] for report in reports] == [2, 0, 0]
    assert [report["existing_messages"] for report in reports[1:]] == [39, 39]
    folds = [json.loads(run("show", "order-17", "--json", "--db", path).stdout)["folds"] for path in (database, other)]
    assert len(folds[0]) == len(folds[1]) == 1


def test_an_encrypted_database_is_refused_with_the_reason(run: Run, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a" * 64)
    url = f"sqlite:///{tmp_path / 'chat.db'}?encryption_key_file={tmp_path / 'key'}"
    assert run("import", "-", "--db", url, stdin=json.dumps(talk(1))).exit_code == 0

    result = run("view", tmp_path / "chat.db")

    assert result.exit_code == 5
    assert "chat.db: is an encrypted database; export its conversations with its key" in result.stderr


AIDER = "# aider chat started at 2026-03-01 10:00:00\n\n#### {question}\n\n{answer}\n"


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        (".aider.chat.history.md", AIDER, ["file-0", "p2-file-0"]),
        ("chat.json", '[{{"role":"user","content":"{question}"}}]', ["chat", "p2-chat"]),
    ],
)
def test_files_of_one_name_and_without_ids_are_imported_under_the_names_of_their_folders(
    on: OnDatabase, tmp_path: Path, name: str, text: str, ids: list[str]
) -> None:
    for folder in ("p1", "p2"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text.format(question=f"Where is {folder}?", answer="There."))
    files = [str(tmp_path / folder / name) for folder in ("p1", "p2")]

    first, again = on("import", *files), on("import", *reversed(files))

    assert (first.exit_code, again.exit_code) == (0, 0)
    assert "imported 2 conversations" in first.stderr
    assert "imported 0 conversations with 0 messages; 2 with" in again.stderr
    assert [shown(on, each)[0] for each in ids] == ["Where is p1?", "Where is p2?"]


def test_folders_of_one_name_get_different_ids(on: OnDatabase, tmp_path: Path) -> None:
    files = [tmp_path / parent / "chats" / "chat.json" for parent in "abc"]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps([user(f"Where is {file.parent.parent.name}?")]))
    names = list(map(str, files))

    assert "imported 3 conversations" in on("import", *names).stderr
    assert "imported 0 conversations with 0 messages; 3 with" in on("import", *names).stderr


def test_branches_whose_ids_begin_alike_are_all_imported(on: OnDatabase, tmp_path: Path) -> None:
    def node(name: str, parent: str | None, role: str) -> dict[str, Any]:
        message = {"id": name, "author": {"role": role}, "content": {"content_type": "text", "parts": [name]}}
        return {"id": name, "parent": parent, "children": [], "message": message}

    leaves = ["message-1", "message-2", "message-3"]
    nodes = [node("root", None, "user"), *(node(leaf, "root", "assistant") for leaf in leaves)]
    export = {"id": "c-1", "current_node": leaves[0], "mapping": {each["id"]: each for each in nodes}}
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([export]))

    result = on("import", str(path))

    assert (result.exit_code, "imported 3 conversations" in result.stderr) == (0, True), result.stderr
    assert [shown(on, name)[-1] for name in ("c-1", "c-1.message-2", "c-1.message-3")] == leaves


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "assistant", "content": None}, "the content is missing"),
        ({"role": "assistant", "content": "", "tool_calls": []}, "tool_calls is empty"),
    ],
)
def test_what_check_refuses_is_imported_and_reported(
    on: OnDatabase, run: Run, tmp_path: Path, message: dict[str, Any], problem: str
) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": [user("Hi."), message]}))

    checked, imported = run("check", path), on("import", path)

    assert (checked.exit_code, imported.exit_code) == (6, 6)
    assert problem in checked.stdout
    assert f"'chat': imported with problems: message 1: {problem}" in imported.stderr
    assert "imported 1 conversations with 2 messages" in imported.stderr


def test_a_session_that_was_imported_within_a_message_continues_in_a_branch(on: OnDatabase, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    reports = []
    for count in (3, 6, 6):  # the second block of the message of line 3 is in line 4
        path.write_bytes(as_lines(CLAUDE_CODE[:count]))
        reports.append(on("import", path))

    assert [report.exit_code for report in reports] == [0, 0, 0] or reports[0].exit_code == 6
    assert "'s-1~2': imported as a branch: the stored 's-1' has other messages from message 1 on" in reports[1].stderr
    assert "imported 0 conversations with 0 messages; 1 with 4 messages already existed" in reports[2].stderr
    assert origin(on, "s-1~2") == ("s-1", 1)
    assert (len(shown(on, "s-1")), len(shown(on, "s-1~2")), ANSWER in shown(on, "s-1~2")[-1]) == (2, 4, True)


def test_a_session_that_was_rewound_continues_in_a_branch_and_nothing_comes_twice(
    on: OnDatabase, tmp_path: Path
) -> None:
    path = tmp_path / "session.jsonl"
    before = [*CLAUDE_CODE[:-1], line(6, 5, "user", user("No."))]
    rewound = [*before, line(7, 5, "user", user("Yes.")), line(8, 7, "user", user("Really."))]
    for lines in (before, rewound[:-1], rewound, rewound):
        path.write_bytes(as_lines(lines))
        result = on("import", path)
        assert result.exit_code == 0, result.stderr

    assert {row["id"] for row in rows(on("ls", "--json"))} == {"s-1", "s-1~2"}
    assert (shown(on, "s-1")[-1], shown(on, "s-1~2")[-2:]) == ("No.", ["Yes.", "Really."])
    assert origin(on, "s-1~2") == ("s-1", 4)


def test_a_session_whose_first_message_was_edited_becomes_another_conversation(on: OnDatabase, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    for text in ("First.", "Second."):
        path.write_bytes(as_lines([line(1, None, "user", user(text))]))
        assert on("import", path).exit_code == 0

    assert (shown(on, "s-1"), shown(on, "s-1~2")) == (["First."], ["Second."])


def chatgpt(*nodes: tuple[str, str, str], current: str) -> str:
    """An export with nodes of (id, parent, role). Their text is their id."""
    mapping = {"root": {"id": "root", "parent": None, "children": []}}
    for name, parent, role in nodes:
        message = {"id": name, "author": {"role": role}, "content": {"content_type": "text", "parts": [name]}}
        mapping[name] = {"id": name, "parent": parent, "children": [], "message": message}  # type: ignore[dict-item]
    return json.dumps([{"conversation_id": "c-1", "current_node": current, "mapping": mapping}])


def test_a_branch_that_becomes_the_current_path_continues_under_its_id(on: OnDatabase, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    first = [("question", "root", "user"), ("yes", "question", "assistant"), ("no", "question", "assistant")]
    grown = [*first, ("why", "no", "user"), ("because", "why", "assistant")]
    reports = []
    for text in (
        chatgpt(*first, current="yes"),
        *[chatgpt(*grown, current="because")] * 2,
        chatgpt(*grown, ("thanks", "because", "user"), current="yes"),
    ):
        path.write_text(text)
        reports.append(on("import", path, "--json"))

    assert [report.exit_code for report in reports] == [0, 0, 0, 0]
    assert {row["id"] for row in rows(on("ls", "--json"))} == {"c-1", "c-1.no"}
    assert shown(on, "c-1") == ["question", "yes"]
    assert shown(on, "c-1.no") == ["question", "no", "why", "because", "thanks"]
    assert [json.loads(report.stdout)["messages"] for report in reports] == [4, 2, 0, 1]


def test_a_branch_of_a_session_that_is_resumed_continues_under_its_id(on: OnDatabase, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    branched = [*CLAUDE_CODE[:-1], line(6, 5, "user", user("No.")), line(7, 5, "user", user("Yes."))]
    for lines in (branched, [*branched, line(8, 6, "user", user("Really, no."))]):
        path.write_bytes(as_lines(lines))
        assert on("import", path).exit_code == 0

    assert {row["id"] for row in rows(on("ls", "--json"))} == {"s-1", "s-1.u6"}
    assert (shown(on, "s-1")[-1], shown(on, "s-1.u6")[-2:]) == ("Yes.", ["No.", "Really, no."])
