"""Scores: which exchanges a cut of `TokenBudgetManager(scorer=…)` leaves out."""

from dataclasses import dataclass

import pytest
import yaml

from minutebook import TokenBudgetManager, view_of
from minutebook.conversation.config import PolicyConfig
from minutebook.conversation.policy import manager_from_texts
from minutebook.errors import InvalidResult, InvalidSetting
from minutebook.history import BM25Scorer, EmbeddingScorer, ScoreContext

SUBJECTS = ("lexer", "parser", "printer", "config", "cache", "tests")
RUN = [{"role": "user", "content": "Why does the parser reject a comma?"}]
for number in range(24):
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    RUN.append({"role": "assistant", "content": None, "tool_calls": [call]})
    subject = "the parser and its comma" if number == 2 else SUBJECTS[number % 6].replace("parser", "docs")
    RUN.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"This file is about {subject}. " * 20})
RELEVANT = RUN[6]

CHAT = [{"role": "system", "content": "You help."}]
for number in range(30):
    CHAT.append({"role": "user", "content": f"How is the weather in town {number}?"})
    CHAT.append({"role": "assistant", "content": f"It rains in town {number}. {'It is cold. ' * 8}"})
CHAT.append({"role": "user", "content": "Where is it warm?"})


def topics(text):
    """A small embedding: how often each topic occurs."""
    return [text.count(topic) for topic in (*SUBJECTS, "comma")]


@pytest.mark.parametrize("scorer", ["bm25", BM25Scorer(), EmbeddingScorer(topics)])
def test_a_scorer_keeps_an_old_result_about_the_request(scorer):
    assert RELEVANT not in view_of(RUN, TokenBudgetManager(1_000, "quality")).messages

    view = view_of(RUN, TokenBudgetManager(1_000, "quality", scorer=scorer))

    assert RELEVANT in view.messages
    assert any("[cleared" in str(message["content"]) for message in view.messages)


def test_exchanges_with_the_lowest_scores_are_left_out_whole_and_the_reason_says_so():
    @dataclass(frozen=True)
    class Even:
        def score(self, exchange, context):
            assert context.request["role"] == "user"
            return float("town 4" in exchange[0]["content"])

    view = view_of(CHAT, TokenBudgetManager(400, names=0, scorer=Even()))

    assert [message for message in view.messages if "town 4" in message["content"]] == CHAT[9:11]
    assert "an exchange with a low score" in str(view.why(12))


def test_the_view_begins_with_the_user_if_the_first_request_has_a_low_score():
    view = view_of(CHAT, TokenBudgetManager(300, names=0, scorer="bm25", preserve_first_request=False))

    assert [message["role"] for message in view.messages[:2]] == ["system", "user"]


def test_a_rare_word_of_the_request_counts_more_than_a_frequent_one():
    exchanges = [[{"role": "user", "content": text}] for text in ("the order", "the bill", "the order", "a rhinoceros")]
    context = ScoreContext({"role": "user", "content": "the order of the rhinoceros"}, exchanges)

    order, bill, again, rare = (BM25Scorer().score(exchange, context) for exchange in exchanges)

    assert bill < order == again < rare


def test_bm25_has_the_same_name_in_a_configuration_and_on_the_command_line():
    expected = TokenBudgetManager(400, scorer="bm25")

    policy = PolicyConfig.model_validate(
        yaml.safe_load("{max_tokens: 400, manager: [{name: token_budget, scorer: bm25}]}")
    )

    assert manager_from_texts(["token_budget:max_tokens=400,scorer=bm25"], None) == expected
    assert policy.manager[0].settings == {"scorer": "bm25"}


class Returns(list):
    """A scorer that returns its first item. A list has no hash."""

    def score(self, exchange, context):
        return self[0]


class Hashed(Returns):
    def __hash__(self):
        return id(self)


@pytest.mark.parametrize("value", [None, "high", float("nan"), [1.0]])
def test_a_score_that_is_no_number_is_refused_with_the_name_of_the_scorer(value):
    with pytest.raises(InvalidResult, match=r"Hashed.score returned .*; return a number"):
        view_of(CHAT, TokenBudgetManager(400, scorer=Hashed([value])))


@pytest.mark.parametrize("scorer", ["bm26", 5, len, Returns([1.0])])
def test_what_is_no_scorer_is_refused_with_the_fix(scorer):
    with pytest.raises(InvalidSetting, match=r'"bm25", or a hashable object with a method score\(exchange, context\)'):
        TokenBudgetManager(400, scorer=scorer)
