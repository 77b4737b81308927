"""Encoded entries are decoded to the same entries."""

import json
from datetime import UTC, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import ConversationEntry
from minutebook.errors import InvalidMessage
from minutebook.store.codec import (
    MAX_INLINE_BYTES,
    body_digest,
    compress,
    decompress,
    microseconds,
    moment,
    pack,
    unpack,
)
from minutebook.testing.contract.samples import SOME_TIME, entries_of
from minutebook.wire.chat import entry_from_json, entry_to_json, entry_to_provider_message
from tests.strategies import any_text, conversations
from tests.transcripts import NAMES, needs_corpus, real


@given(conversations())
def test_an_entry_is_restored_as_from_its_json(chat):
    for entry in entries_of(chat):
        packed, message = pack(entry)

        assert unpack(packed) == entry_from_json(entry_to_json(entry))
        assert message == entry_to_provider_message(unpack(packed))


def test_surrogate_pairs_in_ids_are_joined_before_the_message_is_checked():
    call = {"id": "\ud83d\ude42", "type": "function", "function": {"name": "f", "arguments": ""}}
    (entry,) = entries_of([{"role": "assistant", "content": None, "tool_calls": [call]}])

    assert pack(entry)[1]["tool_calls"][0]["id"] == "🙂"


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_real_messages_are_restored_byte_for_byte(name):
    for conversation in real(name):
        for message in conversation["messages"]:
            try:
                (entry,) = entries_of([message])
            except InvalidMessage:
                continue
            assert json.dumps(entry_to_provider_message(unpack(pack(entry)[0]))) == json.dumps(message)


@given(st.binary(max_size=300), st.integers(1, 100))
def test_a_compressed_piece_is_restored(piece, times):
    assert decompress(compress(piece * times)) == piece * times
    assert len(compress(piece * times)) <= len(piece * times) + 1


def test_repetitive_pieces_become_much_smaller():
    assert len(compress(b"all work and no play " * 100)) < 100
    assert len(compress(b"all work and no play " * MAX_INLINE_BYTES)) < MAX_INLINE_BYTES


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])))
def test_times_are_stored_to_the_microsecond(when):
    assert moment(microseconds(when)) == when
    assert moment(microseconds(when)).utcoffset() == timedelta(0)


@given(st.lists(any_text, max_size=4), st.lists(any_text, max_size=4))
def test_two_lists_of_messages_have_the_same_digest_only_if_they_are_equal(one, other):
    def digest(texts):
        return body_digest(pack(entry)[0] for entry in entries_of([{"role": "user", "content": t} for t in texts]))

    joined = [[json.loads(json.dumps(text)) for text in texts] for texts in (one, other)]
    assert (digest(one) == digest(other)) == (joined[0] == joined[1])


def test_fields_that_a_database_cannot_store_are_rejected():
    for wrong in ({"provider": "a\0"}, {"model": "\ud800"}, {"sequence": 1 << 63}):
        fields = {"role": "user", "content": "x", "evaluation_id": UUID(int=1), "sequence": 0, "created_at": SOME_TIME}
        with pytest.raises(InvalidMessage):
            pack(ConversationEntry(**{**fields, **wrong}))
