import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import Transcript, check, repair, view_of
from minutebook.errors import InvalidMessage, InvalidSetting
from minutebook.record import FindingKind
from minutebook.record.finding import Severity
from minutebook.record.validation import QuickCheck
from tests.strategies import broken, conversations, in_flight

CALL = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
ASK = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "tool", "tool_call_id": "a", "content": "1"}
USER = {"role": "user", "content": "hi"}


def kinds(messages, provider="openai"):
    return [
        (finding.kind, finding.index) for finding in check(messages, provider=provider) if finding.severity == "error"
    ]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER, ANSWER], [(FindingKind.ORPHAN_RESULT, 1)]),
        ([USER, ASK, USER], [(FindingKind.DANGLING_CALL, 1)]),
        ([USER, ASK], [(FindingKind.DANGLING_CALL, 1)]),
        ([USER, ASK, ANSWER, ANSWER], [(FindingKind.DUPLICATE_RESULT, 3)]),
        ([USER, ASK, ANSWER, USER, ANSWER], [(FindingKind.DUPLICATE_RESULT, 4)]),
        ([USER, ASK, USER, ANSWER], [(FindingKind.INTERLEAVED, 3)]),
        ([USER, ANSWER, ASK], [(FindingKind.INTERLEAVED, 1)]),
        ([USER, {**ASK, "tool_calls": [CALL, CALL]}, ANSWER, ANSWER], [(FindingKind.DUPLICATE_ID, 1)]),
        ([{**USER, "role": "narrator"}, USER], [(FindingKind.UNKNOWN_ROLE, 0)]),
        ([{**USER, "tool_calls": [CALL]}], [(FindingKind.MISPLACED_CALLS, 0)]),
        ([USER, ASK, {**ANSWER, "tool_calls": [CALL]}], [(FindingKind.MISPLACED_CALLS, 2)]),
        ([{"role": "system", "content": "x"}], [(FindingKind.EMPTY_VIEW, 0)]),
        ([], [(FindingKind.EMPTY_VIEW, 0)]),
    ],
)
def test_every_provider_rejects(messages, expected):
    assert kinds(messages) == expected


def test_parallel_calls_may_be_answered_in_any_order():
    calls = [{**CALL, "id": name} for name in "abc"]
    results = [{**ANSWER, "tool_call_id": name} for name in "cab"]

    assert check([USER, {**ASK, "tool_calls": calls}, *results], provider="anthropic") == []


@pytest.mark.parametrize(
    ("messages", "kind", "strict"),
    [
        ([{"role": "assistant", "content": "hello"}, USER], FindingKind.WRONG_FIRST_ROLE, {"anthropic", "gemini"}),
        ([USER, ASK, ANSWER, ASK, ANSWER], FindingKind.REUSED_ID, {"anthropic"}),
        (
            [USER, {**ASK, "tool_calls": [{**CALL, "function": {"name": "read", "arguments": "{oops"}}]}, ANSWER],
            FindingKind.BAD_ARGUMENTS,
            {"anthropic", "gemini"},
        ),
    ],
)
def test_a_problem_that_only_some_providers_reject_is_a_warning_for_the_others(messages, kind, strict):
    for provider in ("openai", "anthropic", "gemini"):
        findings = [finding for finding in check(messages, provider=provider) if finding.kind is kind]
        assert [finding.severity for finding in findings] == [
            Severity.ERROR if provider in strict else Severity.WARNING
        ], provider


def test_the_deprecated_function_call_is_paired_by_name():
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    answer = {"role": "function", "name": "f", "content": "1"}

    assert check([USER, call, answer, call, answer], provider="anthropic") == []
    assert kinds([USER, call, USER]) == [(FindingKind.DANGLING_CALL, 1)]


def test_a_finding_names_the_message_and_the_problem():
    assert str(check([USER, ANSWER])[0]) == "message 1: a tool result answers no call ('a')"


@pytest.mark.parametrize(
    "messages", [["text"], [None], [{"role": "assistant", "tool_calls": "x"}], [USER, {"tool_calls": [1]}]]
)
def test_a_value_that_is_no_message_is_an_error_with_its_index(messages):
    with pytest.raises(InvalidMessage, match=f"message {len(messages) - 1}"):
        check(messages)


def test_an_unknown_provider_is_an_error_that_lists_the_known_ones():
    with pytest.raises(InvalidSetting, match="openai, anthropic, gemini"):
        check([USER], provider="acme")


@given(conversations(user_first=True))
def test_finds_nothing_in_a_valid_conversation(chat):
    assert check(chat) == []


@given(st.one_of(conversations(), in_flight(), broken()))
def test_the_quick_check_never_accepts_what_the_full_check_rejects(chat):
    if QuickCheck().passes(chat):
        found = {kind for provider in ("openai", "anthropic", "gemini") for kind, _ in kinds(chat, provider)}

        assert found <= {FindingKind.BAD_PART}  # the quick check does not look at the parts of a content


@given(conversations(user_first=True))
def test_the_quick_check_accepts_valid_conversations(chat):
    assert QuickCheck().passes(chat)


@given(st.lists(st.one_of(conversations(), in_flight(), broken()), max_size=3), st.data())
def test_a_quick_check_of_messages_that_grow_or_change_equals_a_new_one(chats, data):
    growing = QuickCheck()
    for chat in chats:
        start = data.draw(st.integers(0, 2))
        for end in sorted(data.draw(st.sets(st.integers(0, len(chat)), max_size=6))):
            assert growing.passes(chat[start:end]) == QuickCheck().passes(chat[start:end])


def test_the_quick_check_reads_only_the_messages_that_were_added():
    class ReadMessage(dict):
        reads = 0

        def get(self, key, default=None):
            ReadMessage.reads += 1
            return super().get(key, default)

    messages = [ReadMessage(role="user", content=str(number)) for number in range(100)]
    growing = QuickCheck()
    for end in range(1, len(messages) + 1):
        assert growing.passes(messages[:end])

    assert ReadMessage.reads == len(messages)


@pytest.mark.parametrize("part", [{"type": "text"}, {"type": "text", "text": None}, {"type": "text", "text": 5}])
@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
def test_a_text_part_without_text_is_found_and_repaired(part, provider):
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [part, {"type": "text", "text": "x"}]},
    ]

    assert [finding.kind for finding in check(messages, provider=provider)] == [FindingKind.BAD_CONTENT]
    assert check(repair(messages, provider=provider).messages, provider=provider) == []
    with pytest.raises(InvalidMessage, match=r"content\[0\]"):
        view_of(messages, provider=provider)
    assert view_of(Transcript(messages, broken="mark"), provider=provider).violations


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
def test_a_view_of_only_system_messages_reports_that_the_provider_rejects_it(provider):
    view = view_of([{"role": "system", "content": "be brief"}], 8_000, provider=provider, strict=True)

    assert [violation.detail for violation in view.violations] == ["message 0: there are only system messages"]
    assert view_of([{"role": "system", "content": "be brief"}], 8_000).violations == ()
