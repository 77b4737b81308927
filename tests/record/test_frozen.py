import copy
import json
import pickle

import pytest

from minutebook.errors import RecordIsReadOnly
from minutebook.record.message import frozen_copy, plain_copy

MESSAGE = {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "tool_calls": [{"id": "a"}]}


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.__setitem__("content", "x"),
        lambda m: m.update(content="x"),
        lambda m: m.pop("role"),
        lambda m: m.__delitem__("role"),
        lambda m: m.setdefault("x", 1),
        lambda m: m["content"].append(1),
        lambda m: m["content"][0].__setitem__("text", "x"),
        lambda m: m["tool_calls"].clear(),
    ],
)
def test_a_frozen_copy_cannot_be_changed_in_place(change):
    message = frozen_copy(MESSAGE)

    with pytest.raises(RecordIsReadOnly, match=r"return a changed copy"):
        change(message)
    assert message == MESSAGE


def test_a_frozen_copy_reads_like_the_message():
    message = frozen_copy(MESSAGE)

    assert json.dumps(message) == json.dumps(MESSAGE)
    assert {**message, "content": "x"}["content"] == "x"
    assert isinstance(message, dict)
    assert copy.deepcopy(message) == pickle.loads(pickle.dumps(message)) == MESSAGE
    assert type(plain_copy(message)["content"]) is list
