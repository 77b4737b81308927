import json
from pathlib import Path

import pytest

from minutebook.record import is_valid
from minutebook.testing import coding_session
from tests.cli.conftest import Chat, Run
from tests.transcripts import FILES, needs_corpus, real


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("view") / "session.json"
    path.write_text(json.dumps(coding_session(1, turns=6)))
    return path


def test_the_record_stands_beside_the_view_with_reasons(run: Run, whole: Chat) -> None:
    result = run("view", "-", "--manager", "tool_result_truncator:max_length=50", stdin=json.dumps(whole))

    assert result.exit_code == 0
    assert "Be brief." in result.stdout
    assert "longer than 50 characters" in result.stdout
    assert result.stdout.count("truncated") == 2
    assert "messages  6 → 6 (100%)" in result.stdout


def test_without_a_manager_everything_is_sent(run: Run, session: Path) -> None:
    assert json.loads(run("view", session, "--messages").stdout) == json.loads(session.read_text())


def test_a_budget_alone_means_the_budget_manager(run: Run, session: Path) -> None:
    told = json.loads(run("view", session, "--max-tokens", "6000", "--json").stdout)

    assert told["manager"].startswith("TokenBudgetManager(max_tokens=6000")
    assert told["view_tokens"] <= 6000 < told["record_tokens"]
    assert {line["status"] for line in told["messages"]} >= {"sent", "dropped"}
    assert is_valid(told["sent"])


def test_messages_are_what_json_says_is_sent(run: Run, session: Path) -> None:
    told = json.loads(run("view", session, "--max-tokens", "6000", "--json").stdout)

    assert json.loads(run("view", session, "--max-tokens", "6000", "--messages").stdout) == told["sent"]


def test_managers_compose_in_their_order(run: Run, session: Path) -> None:
    told = json.loads(
        run(
            "view",
            session,
            "--manager",
            "tool_result_clearer:keep=1,slack=0",
            "--manager",
            "sliding_window:12",
            "--json",
        ).stdout
    )

    assert told["manager"].startswith("ComposedManager(managers=(ToolResultClearer(keep=1, slack=0")
    assert len(told["sent"]) <= 14


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("passthrough", "PassthroughManager()"),
        ("sliding_window", "SlidingWindowManager(window_size=40, slack=0, align='exchange'"),
        ("sliding_window:7", "SlidingWindowManager(window_size=7"),
        ("sliding_window:window_size=20,slack=10,align=turn,preserve_first_user=yes", "SlidingWindowManager(window_size=20, slack=10, align='turn', preserve_request=True, preserve_first_user=True"),
        ("turn_window:turns=2", "TurnWindowManager(turns=2"),
        ("tool_result_truncator", "ToolResultTruncator(max_length=2000"),
        ("tool_result_clearer", "ToolResultClearer(keep=3"),
        ("tool_stripper:1", "ToolStripper(preserve_turns=1"),
        ("active_tools:read_file", "ActiveToolsManager(active=frozenset({'read_file'})"),
        ("token_budget:max_tokens=9_000,target=0.4", "TokenBudgetManager(max_tokens=9000, preset='balanced', target=0.4"),
    ],
)  # fmt: skip
def test_every_manager_has_a_name(run: Run, session: Path, text: str, made: str) -> None:
    result = run("view", session, "--manager", text, "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["manager"].startswith(made)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sliding_windw", "did you mean 'sliding_window'?"),
        ("nonsense", "expected one of retention, active_tools, passthrough"),
        ("sliding_window:slak=3", "did you mean 'slack'?"),
        ("sliding_window:slack=many", "sliding_window.slack='many': expected a whole number"),
        ("sliding_window:-3", "window_size=-3"),
        ("sliding_window:preserve_request=maybe", "expected true or false"),
        ("sliding_window:align=sideways", "sliding_window.align='sideways'"),
        ("passthrough:x=1", "expected no settings"),
        ("passthrough:1", "expected no settings"),
        ("retention:2", "set it under conversation.retention"),
        ("token_budget", "the limit of token_budget is missing"),
        ("token_budget:900,counter=exact", "token_budget setting='counter'"),
        ("active_tools", "the names of the available tools"),
    ],
)
def test_a_manager_that_is_not_meant_ends_with_2_and_a_hint(run: Run, whole: Chat, text: str, said: str) -> None:
    result = run("view", "-", "--manager", text, stdin=json.dumps(whole))

    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_what_cannot_fit_ends_with_1_and_says_why(run: Run, session: Path) -> None:
    plain = run("view", session, "--max-tokens", "100")
    as_json = run("view", session, "--max-tokens", "100", "--json")

    assert plain.exit_code == as_json.exit_code == 1
    assert plain.stderr.startswith("error: the view needs")
    assert json.loads(as_json.stderr)["error"]["type"] == "CannotFit"


def test_long_runs_are_one_row_unless_all_are_asked_for(run: Run, session: Path) -> None:
    short = run("view", session, "--max-tokens", "6000").stdout
    long = run("view", session, "--max-tokens", "6000", "--all").stdout

    assert " messages  dropped" in short
    assert len(short.splitlines()) < 40
    assert len(long.splitlines()) > len(json.loads(session.read_text()))


def test_what_the_guard_put_right_is_said(run: Run, whole: Chat) -> None:
    result = run("view", "-", "--manager", "sliding_window:0", stdin=json.dumps(whole))

    assert "repaired violation: keeps what matters: the newest request" in result.stdout


def test_a_broken_record_is_repaired_and_explained(run: Run, broken: Chat) -> None:
    result = run("view", "-", stdin=json.dumps(broken))

    assert result.exit_code == 0
    assert "orphan result ('zzz'): dropped" in result.stdout
    assert "[no result was recorded for this call]" in result.stdout


def test_a_conversation_is_chosen_by_id_or_place(run: Run, whole: Chat, broken: Chat) -> None:
    text = "\n".join(
        json.dumps({"id": name, "messages": chat}) for name, chat in (("7", whole), ("x", broken), ("0", whole[:2]))
    )

    assert json.loads(run("view", "-", "--json", stdin=text).stdout)["conversation"]["id"] == "7"
    assert (
        json.loads(run("view", "-", "--json", "--conversation", "x", stdin=text).stdout)["conversation"]["index"] == 1
    )
    assert (
        json.loads(run("view", "-", "--json", "--conversation", "1", stdin=text).stdout)["conversation"]["index"] == 1
    )
    assert (
        json.loads(run("view", "-", "--json", "--conversation", "0", stdin=text).stdout)["conversation"]["index"] == 2
    )
    assert "the file has several conversations, this is the first" in run("view", "-", stdin=text).stderr


def test_a_conversation_that_is_not_there_is_said(run: Run, whole: Chat) -> None:
    result = run("view", "-", "--conversation", "nope", stdin=json.dumps(whole))

    assert result.exit_code == 2
    assert "an index from 0 to 0" in result.stderr


def test_the_model_of_the_file_counts_unless_another_is_named(run: Run, whole: Chat) -> None:
    text = json.dumps({"model": "claude-3-5-sonnet", "messages": whole})

    assert json.loads(run("view", "-", "--json", stdin=text).stdout)["counter"] == "o200k_base x 1.2"
    assert json.loads(run("view", "-", "--json", "--model", "gpt-4", stdin=text).stdout)["counter"] == "cl100k_base"


def test_nothing_in_a_message_can_command_the_terminal(run: Run) -> None:
    text = json.dumps([{"role": "user", "content": "\x1b[2J[bold red]hi[/] \ud800 \x07 \u202e end"}])

    result = run("view", "-", stdin=text)

    assert result.exit_code == 0
    assert not {"\x1b", "\x07", "\ud800", "\u202e"} & set(result.stdout)
    assert "[bold red]hi[/]" in result.stdout


def test_a_lone_surrogate_is_sent_as_a_replacement_character(run: Run) -> None:
    text = '[{"role": "user", "content": "\\ud800"}]'

    assert json.loads(run("view", "-", "--messages", stdin=text).stdout) == [{"role": "user", "content": "\ufffd"}]


SHAPES: list[dict[str, object]] = [
    {"role": "user", "content": ""},
    {"role": "user", "content": None},
    {"role": "user"},
    {"role": "user", "content": []},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]},
    {"role": "assistant"},
    {"role": "assistant", "content": None},
    {"role": "assistant", "content": "", "refusal": "no"},
    {"role": "system", "content": ""},
]


@pytest.mark.parametrize("command", ["view", "check", "tokens", "repair"])
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_every_reading_command_shows_messages_without_text(run: Run, command: str, flags: tuple[str, ...]) -> None:
    for shape in SHAPES:
        result = run(command, "-", *flags, stdin=json.dumps([{"role": "user", "content": "hi"}, shape]))

        assert "internal error" not in result.stderr, shape
        assert result.exit_code in ({0, 1, 6} if command == "check" else {0, 1}), shape


@pytest.mark.slow
@needs_corpus
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", ["view", "check", "tokens", "repair"])
def test_every_reading_command_shows_every_real_conversation(run: Run, command: str, name: str) -> None:
    for number, conversation in enumerate(real(name)):
        result = run(command, "-", stdin=json.dumps(conversation["messages"]))

        assert "internal error" not in result.stderr, (name, number)
        assert result.exit_code in ({0, 6} if command in {"check", "repair"} else {0}), (name, number)


@pytest.mark.slow
@needs_corpus
@pytest.mark.parametrize("name", FILES)
def test_every_command_of_the_database_shows_every_real_conversation(run: Run, name: str, tmp_path: Path) -> None:
    path, db = tmp_path / f"{name}.jsonl", ("--db", tmp_path / "chat.db")
    conversations = [{"id": f"c{number}", "messages": found["messages"]} for number, found in enumerate(real(name))]
    path.write_text("".join(f"{json.dumps(conversation)}\n" for conversation in conversations))
    imported = run("import", path, *db, "--json")
    refused = {problem["id"]: problem["problems"] for problem in json.loads(imported.stdout)["refused"]}
    assert imported.exit_code in ({1} if refused else {0, 6})
    assert all(" is missing; " in problem for problems in refused.values() for problem in problems)
    for conversation in conversations:
        if conversation["id"] in refused:
            continue
        shown = json.loads(run("show", conversation["id"], "--all", "--json", *db).stdout)
        assert [row["message"] for row in shown["messages"]] == conversation["messages"]
        for arguments in (("show",), ("show", "--all", "--folded"), ("export",), ("compact", "--dry-run")):
            result = run(arguments[0], conversation["id"], *arguments[1:], *db)
            assert "internal error" not in result.stderr, (arguments, conversation["id"])
            assert result.exit_code == 0, (arguments, conversation["id"], result.stderr)


def test_the_window_of_a_model_of_ones_own_is_the_budget_of_an_html_file(run: Run, tmp_path: Path, monkeypatch) -> None:
    recording, models, page = tmp_path / "requests.jsonl", tmp_path / "models.json", tmp_path / "out.html"
    messages = [{"role": role, "content": "Well. " * 200} for role in ("user", "assistant") * 10]
    recording.write_text(json.dumps({"model": "mine", "messages": messages}) + "\n")
    models.write_text(json.dumps({"mine": {"max_input_tokens": 1_500}}))
    monkeypatch.setenv("MINUTEBOOK_MODELS_FILE", str(models))
    result = run("view", recording, "--html", page)

    assert result.exit_code == 0, result.output
    assert "over 1,500 tokens" in page.read_text()


def test_one_html_file_has_the_messages_the_reasons_and_the_timeline(run: Run, session: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    result = run("view", session, "--max-tokens", "6000", "--html", path, "--json")
    html = path.read_text()

    assert json.loads(result.stdout)["bytes"] == path.stat().st_size
    assert "over 6,000 tokens" in html
    assert "<svg" in html
    assert "read_file" in html
    assert "<script" not in html


def test_a_redacted_file_has_no_text_and_no_tool_name(run: Run, session: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    run("view", session, "--html", path, "--redact", "texts", "--redact", "tools")
    html = path.read_text()

    assert "read_file" not in html
    assert "shelfmark" not in html
    assert "tool 1" in html


def test_redaction_without_a_file_is_refused(run: Run, session: Path) -> None:
    result = run("view", session, "--redact", "texts")

    assert result.exit_code == 2
    assert "--redact requires --html FILE" in result.stderr
