"""The warning for a system message that leaves no room in a conversation's budget."""

import warnings

import pytest

from minutebook import Conversation
from minutebook.conversation.handle.policy_builder import SystemTooLong
from minutebook.errors import CannotFit


def test_a_system_message_that_exceeds_the_budget_is_reported_when_the_conversation_is_configured():
    with pytest.warns(
        SystemTooLong, match=r"has 1,00\d tokens, but a view may have 500; shorten it or raise max_tokens"
    ):
        chat = Conversation("a", system="word " * 1_000, max_tokens=500)

    with chat:
        chat.append("Hello.")
        with pytest.raises(CannotFit):
            chat.view()


@pytest.mark.parametrize("settings", [{"max_tokens": 5_000}, {}, {"max_tokens": 500, "system": "Be brief."}])
def test_a_system_message_that_fits_is_not_reported(settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Conversation("a", **{"system": "word " * 1_000, **settings}).close()
