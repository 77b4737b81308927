import json

from minutebook import counter_for
from minutebook.testing import coding_session
from tests.cli.conftest import Chat, Run


def test_one_conversation_is_counted_by_role_with_its_largest_messages(run: Run, whole: Chat) -> None:
    told = json.loads(run("tokens", "-", "--json", stdin=json.dumps(whole)).stdout)

    (entry,) = told["conversations"]
    assert (
        told["tokens"]
        == entry["tokens"]
        == sum(map(counter_for(None).message, whole))
        == sum(entry["by_role"].values())
    )
    assert list(entry["by_role"]) == ["system", "user", "assistant", "tool"]
    assert entry["largest"][0]["message"] == 4
    assert (entry["messages"], entry["turns"], entry["exchanges"]) == (6, 1, 4)


def test_the_counter_is_named_with_its_reason(run: Run, whole: Chat) -> None:
    text = json.dumps(whole)

    assert "o200k_base, the default if no model is named" in run("tokens", "-", stdin=text).stdout
    assert "exact: cl100k_base is the tokenizer of gpt-4" in run("tokens", "-", "--model", "gpt-4", stdin=text).stdout
    assert "is not public" in run("tokens", "-", "--model", "claude-3-opus", stdin=text).stdout
    assert "mystery is unknown" in run("tokens", "-", "--model", "mystery", stdin=text).stdout


def test_many_conversations_are_a_table_with_a_total(run: Run) -> None:
    text = "".join(f"{json.dumps({'id': f'chat-{seed}', 'messages': coding_session(seed, 1)})}\n" for seed in range(25))

    result, every = run("tokens", "-", stdin=text), run("tokens", "-", "--all", stdin=text)

    assert "all 25" in result.stdout
    assert "the 20 largest of 25" in result.stdout
    assert result.stdout.count("chat-") == 20
    assert every.stdout.count("chat-") == 25


def test_a_conversation_without_messages_counts_as_nothing(run: Run) -> None:
    result = run("tokens", "-", stdin='{"messages": []}')

    assert result.exit_code == 0
    assert ": 0 tokens" in result.stdout
