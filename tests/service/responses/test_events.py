import json

from hypothesis import given
from hypothesis import strategies as st

from minutebook.agent.providers.openai import MessageAccumulator
from minutebook.service.http.responses import DONE
from minutebook.service.responses.events import Listening, Telling, arranged, slots_of
from minutebook.service.responses.objects import Told, name_of, outputs, response_object
from minutebook.wire.chat import entry_from_json, entry_to_json, entry_to_provider_message, provider_message_to_entry
from tests.wire.test_chat import NOW, RUN

WORDS = st.text(max_size=6) | st.sampled_from(["", "\ud83d", "\ude00", "a\ud83d", "\ude00b", "\x00", "😀"])


def called(index, text, *, first):
    head = {"id": f"call_{index}", "type": "function"} if first else {}
    name = {"name": "find"} if first else {}
    return {"tool_calls": [{"index": index, **head, "function": {**name, "arguments": text}}]}


@st.composite
def deltas(draw, words=WORDS, *, late=True):
    """What a provider may stream: thoughts, words, calls one after the other; at times words once more."""
    found = [{"reasoning_content": text} for text in draw(st.lists(words, max_size=3))]
    found += [{"content": text} for text in draw(st.lists(words, max_size=4))]
    found += [{"refusal": text} for text in draw(st.lists(words, max_size=1))]
    for index in range(draw(st.integers(0, 3))):
        pieces = draw(st.lists(words, min_size=1, max_size=3))
        found += [called(index, text, first=not at) for at, text in enumerate(pieces)]
    found += [{"content": text} for text in draw(st.lists(words, max_size=1 if late else 0))]
    return found


def live(chunks, body):
    """The events as they are told while the answer comes, and the answer."""
    telling, listening, assembly = Telling(name_of(body)), Listening(), MessageAccumulator()
    events = [*telling.begin(response_object("resp_1", body, "in_progress", []))]
    for delta in chunks:
        assembly.add(delta)
        for piece in listening.pieces(delta):
            events += telling.take(*piece)
    for piece in listening.rest():
        events += telling.take(*piece)
    message = arranged(assembly.message(), telling.order)
    for slot, _, head in slots_of(message):
        if slot not in telling.order:
            events += telling.take(slot, "", head)
    body = {**body, "status": "completed", "pieces": [[slot, lengths] for slot, lengths in telling.pieces]}
    events += telling.end(response_object("resp_1", body, "completed", outputs(body, message, "completed")))
    return events, message, body


def body_of():
    return {"status": "in_progress", "created_at": 1, "echo": {"model": "m"}, "input": [0, 1], "evaluation": RUN.hex}


def data(event):
    lines = event.decode().split("\n")
    return lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))


@given(deltas())
def test_the_same_events_come_again_from_the_record(chunks):
    events, message, body = live(chunks, body_of())
    entry = provider_message_to_entry(message, evaluation_id=RUN, sequence=0, created_at=NOW)
    stored = entry_to_provider_message(entry_from_json(entry_to_json(entry)))

    again = [*Told("resp_1", body, stored).events()]

    assert [data(event) for event in again[:-1]] == [data(event) for event in events[:-1]]
    for index in range(len(events) - 1):
        assert [*Told("resp_1", body, stored).events(after=index)] == again[index + 1 :]


@given(deltas())
def test_events_are_numbered_without_gaps_and_named_as_their_data(chunks):
    events, _, _ = live(chunks, body_of())

    assert events[-1] == DONE
    told = [data(event) for event in events[:-1]]
    assert [fact["sequence_number"] for _, fact in told] == list(range(len(told)))
    assert all(name == fact["type"] for name, fact in told)
    assert [name for name, _ in told[:2]] == ["response.created", "response.in_progress"]
    assert told[-1][0] == "response.completed"


@given(deltas(st.text("aß😀\x00", max_size=6), late=False))
def test_each_item_is_told_whole_before_the_next_and_as_the_response_has_it(chunks):
    events, _, _ = live(chunks, body_of())

    told = [data(event)[1] for event in events[:-1]]
    added = [fact["output_index"] for fact in told if fact["type"] == "response.output_item.added"]
    done = [fact["item"] for fact in told if fact["type"] == "response.output_item.done"]
    assert added == list(range(len(added)))
    assert [(one["id"], one["type"]) for one in done] == [
        (one["id"], one["type"]) for one in told[-1]["response"]["output"]
    ]
    assert json.dumps(done, sort_keys=True) == json.dumps(told[-1]["response"]["output"], sort_keys=True)


@given(deltas())
def test_a_response_that_broke_off_says_so_after_whatever_was_heard(chunks):
    _, message, body = live(chunks, body_of())
    told = Told("resp_1", {**body, "status": "failed", "error": {"code": "server_error", "message": "no"}}, message)

    for after in (-1, 0, 3, 10_000):
        *_, error, failed, done = told.events(after=after)
        assert [data(error)[0], data(failed)[0], done] == ["error", "response.failed", DONE]
        assert data(error)[1]["sequence_number"] > after
        assert data(failed)[1]["response"]["status"] == "failed"
