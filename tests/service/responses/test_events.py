import json

from hypothesis import given
from hypothesis import strategies as st

from minutebook.agent.providers.openai import MessageAccumulator
from minutebook.service.http.responses import DONE
from minutebook.service.responses.events import AnswerPiece, DeltaReader, ResponseEvents, answer_items, with_item_order
from minutebook.service.responses.objects import StoredResponse, item_ids, output_items, response_object
from minutebook.wire.chat import entry_from_json, entry_to_json, entry_to_provider_message, provider_message_to_entry
from tests.wire.test_chat import NOW, RUN

WORDS = st.text(max_size=6) | st.sampled_from(["", "\ud83d", "\ude00", "a\ud83d", "\ude00b", "\x00", "😀"])


def call_delta(index, text, *, is_first):
    head = {"id": f"call_{index}", "type": "function"} if is_first else {}
    name = {"name": "find"} if is_first else {}
    return {"tool_calls": [{"index": index, **head, "function": {**name, "arguments": text}}]}


@st.composite
def delta_lists(draw, words=WORDS, *, late=True):
    """Deltas that a provider may stream: reasoning, text and a refusal, calls one after the other, sometimes text again."""
    deltas = [{"reasoning_content": text} for text in draw(st.lists(words, max_size=3))]
    texts = [{"content": text} for text in draw(st.lists(words, max_size=4))]
    refusals = [{"refusal": text} for text in draw(st.lists(words, max_size=1))]
    deltas += refusals + texts if draw(st.booleans()) else texts + refusals
    for index in range(draw(st.integers(0, 3))):
        pieces = draw(st.lists(words, min_size=1, max_size=3))
        deltas += [call_delta(index, text, is_first=not number) for number, text in enumerate(pieces)]
    deltas += [{"content": text} for text in draw(st.lists(words, max_size=1 if late else 0))]
    return deltas


def streamed(deltas, body):
    """The events that are sent during the stream, the answer, and the run's body."""
    events, reader, assembly = ResponseEvents(item_ids(body)), DeltaReader(), MessageAccumulator()
    sent = [*events.start(response_object("resp_1", body, "in_progress", []))]
    for delta in deltas:
        assembly.add(delta)
        for piece in reader.pieces(delta):
            sent += events.add(piece)
    for piece in reader.incomplete_pieces():
        sent += events.add(piece)
    message = with_item_order(assembly.message(), events.order)
    for item in answer_items(message):
        if item.slot not in events.order:
            sent += events.add(AnswerPiece(item.slot, "", item.head))
    body = {**body, "status": "completed", "pieces": [[slot, lengths] for slot, lengths in events.pieces]}
    sent += events.finish(response_object("resp_1", body, "completed", output_items(body, message, "completed")))
    return sent, message, body


def body_of():
    return {"status": "in_progress", "created_at": 1, "echo": {"model": "m"}, "input": [0, 1], "evaluation": RUN.hex}


def data(event):
    lines = event.decode().split("\n")
    return lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))


@given(delta_lists())
def test_a_stored_response_replays_the_streamed_events(deltas):
    events, message, body = streamed(deltas, body_of())
    entry = provider_message_to_entry(message, evaluation_id=RUN, sequence=0, created_at=NOW)
    stored = entry_to_provider_message(entry_from_json(entry_to_json(entry)))

    replayed = [*StoredResponse("resp_1", body, stored).events()]

    assert [data(event) for event in replayed[:-1]] == [data(event) for event in events[:-1]]
    for index in range(len(events) - 1):
        assert [*StoredResponse("resp_1", body, stored).events(after=index)] == replayed[index + 1 :]


@given(delta_lists())
def test_events_are_numbered_without_gaps_and_named_after_their_type(deltas):
    events, _, _ = streamed(deltas, body_of())

    assert events[-1] == DONE
    parsed = [data(event) for event in events[:-1]]
    assert [fact["sequence_number"] for _, fact in parsed] == list(range(len(parsed)))
    assert all(name == fact["type"] for name, fact in parsed)
    assert [name for name, _ in parsed[:2]] == ["response.created", "response.in_progress"]
    assert parsed[-1][0] == "response.completed"


@given(delta_lists(st.text("aß😀\x00", max_size=6)))
def test_each_completed_item_equals_that_of_the_response_also_if_text_follows_a_call(deltas):
    events, _, _ = streamed(deltas, body_of())

    sent = [data(event)[1] for event in events[:-1]]
    added = [fact["output_index"] for fact in sent if fact["type"] == "response.output_item.added"]
    done = [fact["item"] for fact in sent if fact["type"] == "response.output_item.done"]
    assert added == list(range(len(added)))
    assert [(item["id"], item["type"]) for item in done] == [
        (item["id"], item["type"]) for item in sent[-1]["response"]["output"]
    ]
    assert done == sent[-1]["response"]["output"]


@given(delta_lists())
def test_a_failed_response_ends_with_error_events_numbered_after_the_received_ones(deltas):
    _, message, body = streamed(deltas, body_of())
    response = StoredResponse(
        "resp_1", {**body, "status": "failed", "error": {"code": "server_error", "message": "no"}}, message
    )

    for after in (-1, 0, 3, 10_000):
        *_, error, failed, done = response.events(after=after)
        assert [data(error)[0], data(failed)[0], done] == ["error", "response.failed", DONE]
        assert data(error)[1]["sequence_number"] > after
        assert data(failed)[1]["response"]["status"] == "failed"
