"""Scripts as values, and their playback without a server."""

import pytest

from minutebook.errors import InvalidSetting
from minutebook.testing.provider.answers import Playback
from minutebook.testing.script import (
    CallPart,
    ReceivedRequest,
    ScriptedAnswer,
    ScriptedFailure,
    ScriptedModel,
    TextPart,
    ThinkingPart,
    call,
    cut,
    ends,
    fail,
    public_headers,
    refuse,
    say,
    slow,
    think,
    uses,
)


def request(text="hello"):
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return ReceivedRequest(1, "openai", "/v1/chat/completions", {}, body)


def play(*steps, times=1, **options):
    playback = Playback(ScriptedModel(*steps, **options))
    return [playback.next(request()) for _ in range(times)]


def test_steps_are_played_in_order():
    assert play("one", say("two"), times=2) == [say("one"), say("two")]


def test_an_answer_is_the_sum_of_its_parts_in_order():
    [answer] = play(think("hm") + say("look:") + call("ls") + call("read", path="a.py") + ends("length"))

    assert answer.parts == (
        ThinkingPart("hm"),
        TextPart("look:"),
        CallPart("ls", "{}", "call_1"),
        CallPart("read", '{"path": "a.py"}', "call_2"),
    )
    assert answer.finish == "length"


def test_adding_combines_the_settings_of_both_sides():
    answer = say("a") + cut(after_chunks=2) + "b" + uses(prompt=7) + slow(1.5) + refuse("no") + fail(529)

    assert answer == ScriptedAnswer(
        (TextPart("a"), TextPart("b")), "no", None, uses(prompt=7).usage, 2, 1.5, 0.0, ScriptedFailure(529)
    )


def test_call_ids_are_numbered_across_answers():
    answers = play(call("a") + call("b"), call("c"), times=2)

    assert [part.call_id for answer in answers for part in answer.parts] == ["call_1", "call_2", "call_3"]


def test_a_step_may_be_a_function_of_the_request():
    assert play(lambda request: f"you said {request.last_text}") == [say("you said hello")]


def test_playing_a_script_does_not_change_it():
    script = ScriptedModel(call("a"), "b")

    first = [Playback(script).next(request()) for _ in range(2)]

    assert first[0] == first[1]


def test_a_request_after_the_last_step_is_an_error():
    _, failure = play("only", times=2)

    assert (failure.status, failure.code, failure.retryable) == (500, "script_exhausted", False)
    assert "1 steps and this is request 2" in failure.message


def test_otherwise_answers_everything_after_the_last_step():
    assert play("one", times=3, otherwise="more") == [say("one"), say("more"), say("more")]


def test_a_step_that_raises_is_an_error_that_names_it():
    [failure] = play(lambda request: request.body["nonsense"])

    assert failure.status == 500
    assert "step 0 of the script raised KeyError: 'nonsense'" in failure.message


def test_a_step_that_returns_none_is_an_error_that_says_what_to_return():
    [failure] = play(lambda _: None)

    assert "expected a text, say(…), call(…) or fail(…)" in failure.message


def test_arguments_may_be_a_mapping_keywords_or_any_text():
    arguments = [part.arguments for part in (call("t", {"self": 1}, b=2) + call("t", '{"brok')).parts]

    assert arguments == ['{"self": 1, "b": 2}', '{"brok']


def test_arguments_that_are_not_an_object_are_wrapped_for_anthropic():
    assert [part.input for part in (call("t", "[1]") + call("t", "{x") + call("t", "")).parts] == [
        {"INVALID_JSON": "[1]"},
        {"INVALID_JSON": "{x"},
        {},
    ]


def test_an_invalid_step_is_refused_when_the_script_is_created():
    with pytest.raises(InvalidSetting, match="step 1=7"):
        ScriptedModel("fine", 7)


def test_an_unknown_finish_reason_is_refused():
    with pytest.raises(InvalidSetting, match="one of stop, length"):
        ends("tired")


def test_headers_with_secrets_are_removed():
    assert public_headers({"Authorization": "Bearer s", "X-Api-Key": "s", "User-Agent": "u"}) == {"user-agent": "u"}
