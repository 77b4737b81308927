"""The list of names of messages that a budget leaves out."""

from minutebook import TokenBudgetManager, Transcript, view_of
from minutebook.history.names import MessageNames
from minutebook.testing import coding_session


def test_the_list_has_names_of_left_out_messages_and_stays_within_its_share() -> None:
    record = Transcript(coding_session(seed=1, turns=8))
    view = view_of(record, TokenBudgetManager(6_000, names=0.05))

    (name_list,) = [
        message for message, origin in zip(view.curated, view.curated.origins, strict=True) if origin is None
    ]
    listed = set(name_list["content"].partition(": ")[2].removesuffix("]").split())
    names = MessageNames(record)
    unchanged = {id(message) for message in view.curated}
    left_out = frozenset().union(*(names.within(message) for message in record if id(message) not in unchanged))
    assert len(listed) > 10
    assert listed <= left_out
    assert record.counter.message(name_list) <= 0.05 * 6_000
    assert view.tokens <= 6_000


def test_the_list_is_explained_as_an_added_message() -> None:
    record = Transcript(coding_session(seed=1, turns=8))

    explanation = view_of(record, TokenBudgetManager(6_000, names=0.05)).explain()

    assert [line.reason for line in explanation.lines if line.index is None] == ["not in the record"]


def test_a_list_that_would_be_too_short_is_not_added() -> None:
    record = Transcript(coding_session(seed=1, turns=8))

    assert view_of(record, TokenBudgetManager(600, names=0.05)).curated.origins.count(None) == 0
