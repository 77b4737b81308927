"""The chat at a real terminal, with a real server."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from minutebook.testing import LoopbackProvider, ScriptedModel, ends, fail, say, slow, think
from tests.cli.conftest import Run, stored_chat, stored_chats
from tests.cli.terminal import Pause, terminal

COUNTING = say("one two three four five six") + slow(between_seconds=1)
THREE_WORDS = 3


def chat(provider: LoopbackProvider, *arguments: str | Path) -> tuple[str | Path, ...]:
    return ("chat", "-m", "gpt-4o", "--base-url", provider.base_url, *arguments)


@pytest.fixture
def pause() -> Iterator[Pause]:
    """Holds an answer back after three words; whoever waits at the end of a test may go."""
    made = Pause(THREE_WORDS)
    yield made
    made.end()


@pytest.mark.usefixtures("state")
def test_words_are_shown_as_they_come(pause: Pause) -> None:
    with (
        LoopbackProvider(ScriptedModel(COUNTING), wait=pause) as provider,
        terminal(*chat(provider)) as at,
    ):
        at.say("Count.")

        assert at.expect("one two three") == "…one two three"
        pause.end()
        assert at.expect("recorded").splitlines() == [
            " four five six",
            "tokens 6 in, 0 cached, 6 out · messages 1 sent, 2 recorded",
        ]


@pytest.mark.usefixtures("state")
def test_context_and_view_show_what_was_sent_and_why() -> None:
    script = ScriptedModel("A first answer.", "A second answer.", "A third answer.")
    with (
        LoopbackProvider(script) as provider,
        terminal(
            *chat(provider, "--manager", "sliding_window:2", "--max-tokens", "200", "--system", "Be brief.")
        ) as at,
    ):
        at.say("/context")
        at.expect("the chat is empty")
        at.say("/view")
        at.expect("nothing was sent in this chat session yet")
        for question in ("Alpha?", "Beta?", "Gamma?"):
            at.say(question)
            at.expect("recorded")
        at.say("/context")
        context = at.expect("added since then: 1 messages, 8 tokens")
        at.say("/view")
        table = at.expect("messages  6 → 3 (50%)")
        at.say("/view json")
        messages = at.expect("\n]")
        sent = [dict(message) for message in provider.requests[-1].messages]

    assert context.startswith("█")
    assert "· free" in context
    assert "▫ left out" in context
    assert "3 of 6 messages sent, 21 of 200 tokens; 3 left out: older than the window of 2 messages" in context
    assert "older than the window of 2 messages" in table
    assert "Gamma?" in table
    assert "third answer" not in table
    assert json.loads(messages) == sent


@pytest.mark.usefixtures("state")
def test_ctrl_c_stops_an_answer_and_what_came_is_kept(pause: Pause) -> None:
    with (
        LoopbackProvider(ScriptedModel(COUNTING, "Yes?"), wait=pause) as provider,
        terminal(*chat(provider)) as at,
    ):
        at.say("Count.")
        at.expect("one two three")
        at.settle()
        at.press("\x03")
        at.expect("stopped; the part received so far is stored")
        pause.end()
        at.say("Never mind.")
        at.expect("Yes?")
        at.say("/quit")
        code = at.end()
        heard = [(message["role"], message["content"]) for message in provider.requests[-1].messages]

    assert code == 0
    assert heard == [("user", "Count."), ("assistant", "one two three "), ("user", "Never mind.")]
    assert stored_chat() == [*heard, ("assistant", "Yes?")]


@pytest.mark.usefixtures("state")
def test_ctrl_c_at_the_prompt_clears_the_line_and_a_second_one_leaves() -> None:
    with LoopbackProvider(ScriptedModel("Hello.")) as provider, terminal(*chat(provider)) as at:
        at.at_prompt()
        at.press("half a line\x03")
        at.expect("press Ctrl-C again or Ctrl-D to leave")
        at.say("Hello?")
        at.expect("recorded")
        at.at_prompt()
        at.press("\x03")
        at.expect("Ctrl-C again")
        at.at_prompt()
        at.press("\x03")
        code = at.end()

    assert code == 130
    assert stored_chat() == [("user", "Hello?"), ("assistant", "Hello.")]
    assert f"continue with: minutebook chat --continue --base-url {provider.base_url}" in at.screen


@pytest.mark.usefixtures("state")
def test_leaving_without_a_word_leaves_nothing() -> None:
    with LoopbackProvider(ScriptedModel()) as provider, terminal(*chat(provider)) as at:
        at.expect("> ")
        at.press("\x04")

        assert at.end() == 0
    assert stored_chats() == {}
    assert "go on with" not in at.screen


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["kill", "hangup"])
def test_told_to_stop_it_keeps_what_came_and_leaves(pause: Pause, number: signal.Signals) -> None:
    with (
        LoopbackProvider(ScriptedModel(COUNTING), wait=pause) as provider,
        terminal(*chat(provider, "Count.")) as at,
    ):
        at.expect("one two three")
        at.process.send_signal(number)

        assert at.end() == 143
        pause.end()
    assert stored_chat() == [("user", "Count."), ("assistant", "one two three ")]


@pytest.mark.usefixtures("state")
def test_told_to_stop_at_the_prompt_it_leaves() -> None:
    with LoopbackProvider(ScriptedModel("Hello.")) as provider, terminal(*chat(provider, "Hello?")) as at:
        at.expect("recorded")
        at.at_prompt()
        at.process.send_signal(signal.SIGTERM)

        assert at.end() == 143
    assert stored_chat() == [("user", "Hello?"), ("assistant", "Hello.")]


@pytest.mark.usefixtures("state")
def test_a_chat_that_was_killed_in_the_middle_of_an_answer_goes_on(run: Run, pause: Pause) -> None:
    with LoopbackProvider(ScriptedModel(COUNTING, "Here I am."), wait=pause) as provider:
        with terminal(*chat(provider, "Count.")) as at:
            at.expect("one two three")
            at.process.kill()
        pause.end()
        result = run(*chat(provider, "--continue", "Are you there?"))
        heard = [(message["role"], message["content"]) for message in provider.requests[-1].messages]

    assert result.stdout == "Here I am.\n"
    assert heard == [("user", "Count."), ("user", "Are you there?")]
    assert stored_chat() == [*heard, ("assistant", "Here I am.")]


@pytest.mark.usefixtures("state")
def test_going_on_shows_where_it_was(run: Run) -> None:
    with LoopbackProvider(ScriptedModel("At the harbour.", "Still there.")) as provider:
        run(*chat(provider, "Where is the boat?"))
        with terminal("chat", "--continue", "--base-url", provider.base_url, "--max-tokens", "100") as at:
            greeting = at.expect("/help lists")
            at.say("/context")
            context = at.expect("2 of 2 messages to send, 17 of 100 tokens")
            at.say("And now?")
            at.expect("Still there.")
        heard = [message["content"] for message in provider.requests[-1].messages]

    assert "user: Where is the boat?\nassistant: At the harbour." in greeting
    assert "█" not in context
    assert heard == ["Where is the boat?", "At the harbour.", "And now?"]


@pytest.mark.usefixtures("state")
def test_what_the_provider_refuses_is_one_red_line_and_the_chat_goes_on() -> None:
    script = ScriptedModel(fail(401, "no such key"), "Better.", fail(503, retryable=False))
    with LoopbackProvider(script) as provider, terminal(*chat(provider)) as at:
        at.say("Hello?")
        at.expect("error: openai returned status 401: no such key; check OPENAI_API_KEY\n")
        at.say("Once more.")
        at.expect("Better.")
        at.say("And again.")
        at.expect("check -m, --provider and --base-url")

    assert "\x1b[31m" in at.raw
    assert stored_chat() == [
        ("user", "Hello?"),
        ("user", "Once more."),
        ("assistant", "Better."),
        ("user", "And again."),
    ]


@pytest.mark.usefixtures("state")
def test_nothing_a_model_says_commands_the_terminal() -> None:
    script = ScriptedModel(say("\x1b[2Jred\x07 over\rwrite \u202eend") + ends("length"))
    with LoopbackProvider(script) as provider, terminal(*chat(provider, "Be evil.")) as at:
        at.expect("�[2Jred� overwrite �end\n")
        at.expect("cut off at the output limit")

    assert "\x07" not in at.raw
    assert "\x1b[2J" not in at.raw


@pytest.mark.usefixtures("state")
def test_thoughts_stand_apart_from_the_answer() -> None:
    with (
        LoopbackProvider(ScriptedModel(think("Hm, a question.") + say("Yes."))) as provider,
        terminal(*chat(provider, "Really?")) as at,
    ):
        assert at.expect("Yes.\n").endswith("Hm, a question.\nYes.\n")


@pytest.mark.usefixtures("state")
def test_long_messages_and_ones_that_look_like_commands_can_be_said() -> None:
    with (
        LoopbackProvider(ScriptedModel("Two lines.", "A path.", "A blank.")) as provider,
        terminal(*chat(provider)) as at,
    ):
        at.expect("> ")
        at.press("one\\\ntwo\n")
        at.expect("Two lines.")
        at.say("/usr/bin")
        at.expect("A path.")
        at.say(" /view")
        at.expect("A blank.")
        at.say("/veiw")
        at.expect("unknown command /veiw; /help lists the commands")
        at.say("/help")
        at.expect("/quit        leave")
        heard = [message["content"] for message in provider.requests[-1].messages if message["role"] == "user"]

    assert heard == ["one\ntwo", "/usr/bin", "/view"]


@pytest.mark.usefixtures("state")
def test_print_answers_once_at_a_terminal_too() -> None:
    with LoopbackProvider(ScriptedModel("Blue.")) as provider, terminal(*chat(provider, "-p", "Colour?")) as at:
        code = at.end()

    assert code == 0
    assert at.screen == "…Blue.\n"
