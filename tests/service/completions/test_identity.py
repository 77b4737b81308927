import pytest

from minutebook.errors import RequestRefused
from minutebook.service.completions.reconcile import Identity, identity_of


@pytest.mark.parametrize(
    ("headers", "body", "found"),
    [
        ({}, {}, None),
        ({}, {"conversation": "c-1"}, "c-1"),
        ({}, {"conversation": {"id": "c-1"}}, "c-1"),
        ({"x-conversation-id": "c-2"}, {"conversation": "c-1"}, "c-1"),
        ({"x-conversation-id": "c-2", "x-openwebui-chat-id": "c-3"}, {}, "c-2"),
        ({"x-litellm-session-id": "c-4", "x-session-id": "c-5"}, {}, "c-4"),
        ({"x-claude-code-session-id": "abcdefgh"}, {}, "abcdefgh"),
        ({"x-claude-code-session-id": "short"}, {}, None),
        ({"thread-id": "t-1"}, {}, None),
        ({"thread-id": "t-1", "session-id": "s-1", "user-agent": "Codex/1"}, {}, "t-1"),
        ({"x-session-id": "c-5"}, {"metadata": {"thread_id": "c-6"}}, "c-5"),
        ({}, {"metadata": {"session_id": "s", "thread_id": "t", "conversation_id": "c"}}, "c"),
        ({}, {"metadata": {"session_id": "s", "thread_id": "t"}}, "t"),
        ({}, {"user": "u", "prompt_cache_key": "k", "metadata": {"user_id": "u"}}, None),
    ],
)
def test_the_most_specific_conversation_id_is_used(headers, body, found):
    told = identity_of(headers, body)
    assert (told and told.conversation) == found


@pytest.mark.parametrize(
    ("user_agent", "resend"),
    [
        ("Agents/Python 0.24.0", "all"),
        ("pydantic-ai/2.66.0", "all"),
        ("langchainjs-openai/1.0.0 ((node/v22.0.0; linux; x64))", "all"),
        ("langchainjs-azure-openai/2.0.0 ((node/v22.0.0; linux; x64))", "all"),
        ("OpenAI/Python 3.51.0", "auto"),
        ("OpenAI/JS 6.49.0", "auto"),
        ("curl/8.5.0", "auto"),
    ],
)
def test_the_user_agent_identifies_a_client_that_resends_its_history(user_agent, resend):
    assert identity_of({"x-conversation-id": "c", "user-agent": user_agent}, {}) == Identity("c", resend=resend)
    assert identity_of({"x-conversation-id": "c", "user-agent": user_agent}, {}, "new") == Identity("c", resend="new")


def test_a_header_identifies_a_client_that_resends_its_history():
    assert identity_of({"x-openwebui-chat-id": "c-3"}, {}) == Identity("c-3", resend="all", may_be_auxiliary=True)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "a\nb", 7, {"id": 7}, {"id": None}, {}])
def test_an_invalid_conversation_id_is_rejected(name):
    with pytest.raises(RequestRefused):
        identity_of({}, {"conversation": name})
