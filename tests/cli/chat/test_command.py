"""One question, one answer, for scripts."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from minutebook.store import open_store
from minutebook.testing import LoopbackProvider, ScriptedModel, cut, fail, refuse, say, slow
from tests.cli.conftest import Run, inherited, rows, stored_chat, stored_chats
from tests.cli.terminal import Pause


def ask(provider: LoopbackProvider, *arguments: str | Path) -> tuple[str | Path, ...]:
    return ("chat", "-m", "gpt-4o", "--base-url", provider.base_url, *arguments)


def heard(provider: LoopbackProvider) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in provider.requests[-1].messages]


@pytest.mark.usefixtures("state")
def test_stdout_is_the_answer_and_nothing_else(run: Run) -> None:
    with LoopbackProvider(ScriptedModel("Blue,\n  mostly.")) as provider:
        result = run(*ask(provider, "Which colour?"))

    assert (result.exit_code, result.stdout, result.stderr) == (0, "Blue,\n  mostly.\n", "")


@pytest.mark.usefixtures("state")
def test_a_question_can_come_from_stdin(run: Run) -> None:
    with LoopbackProvider(ScriptedModel(otherwise="Yes.")) as provider:
        run(*ask(provider), stdin="Is it\nso?\n")
        assert heard(provider) == [("user", "Is it\nso?")]
        run(*ask(provider, "-"), stdin="And this?\n")
        assert heard(provider) == [("user", "And this?")]


def test_json_tells_the_tokens_and_what_was_sent(run: Run, state: Path) -> None:
    with LoopbackProvider(ScriptedModel("A first answer.", "A second answer.")) as provider:
        run(*ask(provider, "A first question?", "--system", "Be brief."))
        result = run(*ask(provider, "A second question?", "--continue", "--manager", "sliding_window:1", "--json"))

    told = json.loads(result.stdout)
    assert told["text"] == "A second answer."
    assert (told["finish"], told["refusal"], told["provider"], told["model"]) == ("stop", None, "openai", "gpt-4o")
    assert told["usage"]["input_tokens"] > told["usage"]["output_tokens"] > 0
    assert (told["view"]["messages"], told["view"]["record_messages"]) == (2, 4)
    (gone,) = told["view"]["cuts"]
    assert (gone["status"], gone["reason"], gone["messages"]) == ("dropped", "older than the window of 1 messages", 2)
    assert told["view"]["tokens"] + gone["tokens"] == told["view"]["record_tokens"]
    assert [told["conversation"]] == list(stored_chats())


@pytest.mark.usefixtures("state")
def test_an_answer_that_is_refused_is_told(run: Run) -> None:
    with LoopbackProvider(ScriptedModel(refuse("I will not."))) as provider:
        told = json.loads(run(*ask(provider, "Do it.", "--json")).stdout)

    assert told["refusal"] == told["text"] == "I will not."


def test_going_on_sends_what_was_said_before(run: Run, state: Path) -> None:
    with LoopbackProvider(ScriptedModel("One.", "Two.", "Three.")) as provider:
        run(*ask(provider, "First?", "--system", "Be brief."))
        run("chat", "Second?", "--continue", "--base-url", provider.base_url)
        assert heard(provider) == [
            ("system", "Be brief."),
            ("user", "First?"),
            ("assistant", "One."),
            ("user", "Second?"),
        ]
        run(*ask(provider, "Third?", "--continue", "--system", "Be kind."))

        assert heard(provider)[0] == ("system", "Be kind.")
        assert [text for _, text in heard(provider)[1:]] == ["First?", "One.", "Second?", "Two.", "Third?"]
        assert provider.problems == []
    assert [role for role, _ in stored_chat()] == ["system", *["user", "assistant"] * 3]
    assert stored_chat()[0] == ("system", "Be brief.")  # a fold shows the other one


def test_a_system_message_can_be_given_later(run: Run, state: Path) -> None:
    with LoopbackProvider(ScriptedModel("One.", "Two.", "Three.")) as provider:
        run(*ask(provider, "First?"))
        run(*ask(provider, "Second?", "--continue", "--system", "Be kind."))
        run(*ask(provider, "Third?", "--continue"))

        assert [role for role, _ in heard(provider)] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [role for role, _ in stored_chat()] == ["user", "assistant"] * 3


@pytest.mark.usefixtures("state")
def test_every_system_message_takes_the_place_of_the_one_before(run: Run) -> None:
    with LoopbackProvider(ScriptedModel(otherwise="Yes.")) as provider:
        run(*ask(provider, "First?"))
        for system in ("Be kind.", "Be brief.", "Be brief."):
            run(*ask(provider, "And?", "--continue", "--system", system))
            assert [text for role, text in heard(provider) if role == "system"] == [system]
            assert heard(provider)[1] == ("user", "First?")


def test_a_cleared_chat_gets_a_new_system_message(run: Run, state: Path) -> None:
    with LoopbackProvider(ScriptedModel(otherwise="Yes.")) as provider:
        run(*ask(provider, "First?", "--id", "tea", "--system", "Be brief."))
        run("clear", "tea")
        for question, system in (("Second?", "Be kind."), ("Third?", "Be polite.")):
            run(*ask(provider, question, "--continue", "--id", "tea", "--system", system))
            assert heard(provider)[:2] == [("system", system), ("user", "Second?")]
            assert heard(provider)[-1] == ("user", question)


@pytest.mark.usefixtures("state")
def test_the_chat_in_which_something_was_said_last_goes_on(run: Run) -> None:
    with LoopbackProvider(ScriptedModel(otherwise="Yes.")) as provider:
        run(*ask(provider, "Old?", "--id", "old"))
        run(*ask(provider, "New?", "--id", "new"))
        run(*ask(provider, "Still?", "--continue", "--id", "old"))
        run(*ask(provider, "Indeed?", "--continue"))

        assert heard(provider)[0] == ("user", "Old?")
    assert [text for _, text in stored_chats()["old"]] == ["Old?", "Yes.", "Still?", "Yes.", "Indeed?", "Yes."]


def test_the_folder_is_for_its_owner_alone(run: Run, state: Path) -> None:
    with LoopbackProvider(ScriptedModel(otherwise="Yes.")) as provider:
        run(*ask(provider, "Is it?"))

    assert state.stat().st_mode & 0o777 == 0o700


def test_a_chat_is_a_conversation_of_the_database_with_minutes(run: Run, state: Path) -> None:
    with LoopbackProvider(ScriptedModel("Sencha.")) as provider:
        run(*ask(provider, "Name a tea.", "--id", "tea"))

    async def minutes() -> list[Mapping[str, Any]]:
        async with open_store(f"sqlite:///{state / 'minutebook.db'}") as store:
            return [document.body for document in (await store.documents("tea", "request")).items]

    assert [(one["id"], one["recipient"], one["messages"]) for one in rows(run("ls", "--json"))] == [("tea", "chat", 2)]
    assert "Sencha." in run("show", "tea").stdout
    assert [hit["position"] for hit in rows(run("search", "sencha", "--json"))] == [1]
    (request,) = asyncio.run(minutes())
    assert (request["model"], request["finish"], request["parts"]) == ("gpt-4o", "stop", [[0, 1]])


def test_a_conversation_can_have_a_name_and_a_database(run: Run, state: Path, tmp_path: Path) -> None:
    named = ("--id", "tea", "--db", f"sqlite:///{tmp_path / 'tea.db'}")
    with LoopbackProvider(ScriptedModel(otherwise="Yes.")) as provider:
        first = run(*ask(provider, "Tea?", *named))
        again = run(*ask(provider, "Tea?", *named))
        run(*ask(provider, "Milk?", *named, "--continue"))
        texts = [text for _, text in heard(provider)]

    assert first.exit_code == 0
    assert again.exit_code == 2
    assert "to continue this conversation, add --continue" in again.stderr
    assert texts == ["Tea?", "Yes.", "Milk?"]
    assert not state.exists()


def test_a_conversation_that_somebody_else_answers_in_is_refused(run: Run, state: Path) -> None:
    async def take() -> None:
        async with open_store(f"sqlite:///{state / 'minutebook.db'}") as store:
            await store.acquire_lease("tea", "somebody", seconds=60)

    with LoopbackProvider(ScriptedModel(otherwise="Yes.")) as provider:
        run(*ask(provider, "Tea?", "--id", "tea"))
        asyncio.run(take())
        result = run(*ask(provider, "Milk?", "--continue"))

    assert result.exit_code == 1
    assert "conversation 'tea' is leased to another holder" in result.stderr
    assert stored_chat() == [("user", "Tea?"), ("assistant", "Yes.")]


def test_anthropic_can_be_asked(run: Run, state: Path) -> None:
    with LoopbackProvider(ScriptedModel("One.", "Two.")) as provider:
        arguments = ("--base-url", provider.anthropic_url)
        run("chat", "First?", "-m", "claude-x", "--provider", "anthropic", "--system", "Be brief.", *arguments)
        result = run("chat", "Second?", "--continue", *arguments)
        request = provider.requests[-1]

    assert result.stdout == "Two.\n"
    assert (request.provider, request.model, request.body["system"][0]["text"]) == (
        "anthropic",
        "claude-x",
        "Be brief.",
    )
    assert [message["role"] for message in request.messages] == ["user", "assistant", "user"]
    assert len(stored_chats()) == 1


@pytest.mark.usefixtures("state")
def test_the_provider_and_the_model_are_known_where_nobody_answered(run: Run) -> None:
    with LoopbackProvider(ScriptedModel(fail(400, "no"), "Now.")) as provider:
        where = ("--base-url", provider.anthropic_url)
        run("chat", "First?", "-m", "claude-x", "--provider", "anthropic", *where)
        result = run("chat", "Again?", "--continue", *where)

        assert (result.stdout, provider.requests[-1].provider, provider.requests[-1].model) == (
            "Now.\n",
            "anthropic",
            "claude-x",
        )


def test_a_key_is_taken_from_the_environment_and_a_server_of_ones_own_needs_none(
    run: Run, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackProvider(ScriptedModel(otherwise="Yes."), api_key="none") as provider:
        assert run(*ask(provider, "Is it?")).exit_code == 0
        monkeypatch.setenv("OPENAI_API_KEY", "mine")
        assert "returned status 401" in run(*ask(provider, "Is it?")).stderr
        monkeypatch.setenv("OPENAI_API_KEY", "")
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        assert run("chat", "Is it?", "-m", "gpt-4o").exit_code == 0


@pytest.mark.parametrize(
    ("provider", "key"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")], ids=["openai", "anthropic"]
)
def test_without_a_key_it_says_what_to_set_and_writes_nothing(run: Run, state: Path, provider: str, key: str) -> None:
    result = run("chat", "Hello?", "-m", "any", "--provider", provider)

    assert result.exit_code == 2
    assert f"export {key}=…, or" in result.stderr
    assert not state.exists()


@pytest.mark.parametrize("module", ["openai", "anthropic"])
def test_a_client_that_is_not_installed_is_named(
    run: Run, state: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)

    result = run("chat", "Hello?", "-m", "any", "--provider", module, "--base-url", "http://127.0.0.1:9")

    assert result.exit_code == 1
    assert f"pip install 'minutebook[{module}]'" in result.stderr
    assert not state.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("Hello?", "-m", "any", "--base-url", "localhost:80"), "a URL that starts with http:// or https://"),
        (("Hello?", "-m", "any", "--manager", "slidng_window"), "did you mean 'sliding_window'?"),
        (("Hello?", "-m", "any", "--system", " "), "--system=' ': expected text"),
        (("Hello?",), "Missing option '-m'"),
        ((" ", "-m", "any"), "Missing argument 'PROMPT'"),
        (("-m", "any", "--json"), "Missing argument 'PROMPT'"),
    ],
    ids=["address", "manager", "system", "model", "blank", "nothing"],
)
def test_what_is_not_meant_ends_with_2_and_writes_nothing(
    run: Run, state: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = run("chat", *arguments)

    assert result.exit_code == 2
    assert said in result.stderr
    assert not state.exists()


def test_without_a_chat_there_is_nothing_to_go_on_with(run: Run, state: Path) -> None:
    nowhere = run("chat", "Hello?", "--continue")
    run("db", "init")
    result = run("chat", "Hello?", "--continue")

    assert nowhere.exit_code == result.exit_code == 3
    assert "no such database" in nowhere.stderr
    path = state / "minutebook.db"
    assert result.stderr == f"error: {path}: there is no chat to continue; omit --continue to start one\n"


def test_a_failure_says_what_to_do_and_the_question_is_kept(run: Run, state: Path) -> None:
    with LoopbackProvider(ScriptedModel(fail(403, "not yours"), fail(404, "no such model"))) as provider:
        plain = run(*ask(provider, "May I?"))
        as_json = run(*ask(provider, "May I now?", "--continue", "--json"))

    assert plain.exit_code == as_json.exit_code == 1
    assert (
        plain.stderr
        == "error: openai returned status 403: not yours; check OPENAI_API_KEY and whether it may use this model\n"
    )
    assert json.loads(as_json.stderr)["error"]["message"].endswith("check -m, --provider and --base-url")
    assert plain.stdout == as_json.stdout == ""
    assert stored_chat() == [("user", "May I?"), ("user", "May I now?")]


@pytest.mark.usefixtures("state")
def test_what_the_provider_says_of_a_failure_is_one_line(run: Run) -> None:
    with LoopbackProvider(ScriptedModel(fail(400, "two\nlines \x1b[2J"))) as provider:
        result = run(*ask(provider, "Hello?"))

    assert result.stderr == "error: openai returned status 400: two lines �[2J; check -m, --provider and --base-url\n"


@pytest.mark.usefixtures("state")
def test_without_max_tokens_a_chat_fits_the_window_of_its_model(run: Run) -> None:
    with LoopbackProvider(ScriptedModel(otherwise="An answer. " * 300), max_context_tokens=8_192) as provider:
        for number in range(9):
            arguments = ["--continue"] if number else ["-m", "gpt-4"]
            result = run("chat", *arguments, "--base-url", provider.base_url, f"Question {number}?")
            assert (result.exit_code, result.stderr) == (0, "")

        assert provider.problems == []
        assert len(provider.requests[-1].messages) < 17


@pytest.mark.usefixtures("state")
def test_what_cannot_fit_is_said(run: Run) -> None:
    with LoopbackProvider(ScriptedModel()) as provider:
        result = run(*ask(provider, "word " * 100, "--max-tokens", "50"))

        assert provider.requests == []
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the view needs")


@pytest.mark.usefixtures("state")
def test_an_answer_that_breaks_off_is_asked_for_again_and_printed_once(run: Run) -> None:
    with LoopbackProvider(ScriptedModel(say("one two three") + cut(after_chunks=2), "one two three")) as provider:
        result = run(*ask(provider, "Count."))

    assert result.stdout == "one two three\n"
    assert result.stderr.endswith("; retrying\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "kill"])
def test_stopped_it_prints_what_came_and_keeps_it(state: Path, number: signal.Signals, code: int) -> None:
    pause = Pause(3)
    hear = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = [sys.executable, "-c", f"{hear}; from minutebook.cli.main import main; main()"]
    with (
        LoopbackProvider(ScriptedModel(say("one two three four") + slow(between_seconds=1)), wait=pause) as provider,
        subprocess.Popen(
            [*program, *map(str, ask(provider, "Count."))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=inherited(),
        ) as command,
    ):
        pause.reached.wait()
        command.send_signal(number)
        said, problem = command.communicate()
        pause.end()

    assert (command.returncode, problem) == (code, b"")
    assert said.strip() in {b"", b"one", b"one two", b"one two three"}
    assert stored_chat()[-1][1].strip() == (said.decode().strip() or "Count.")


@pytest.mark.usefixtures("state")
def test_the_window_of_a_model_of_ones_own_limits_the_view(run: Run, tmp_path: Path, monkeypatch) -> None:
    models = tmp_path / "models.json"
    models.write_text(json.dumps({"mine": {"max_input_tokens": 3_000, "max_output_tokens": 500}}))
    monkeypatch.setenv("MINUTEBOOK_MODELS_FILE", str(models))
    with LoopbackProvider(ScriptedModel(otherwise="An answer. " * 300)) as provider:
        for number in range(5):
            arguments = ["--continue"] if number else ["-m", "mine"]
            run("chat", *arguments, "--base-url", provider.base_url, f"Question {number}?")

    assert [len(request.messages) for request in provider.requests] == [1, 3, 5, 2, 4]
