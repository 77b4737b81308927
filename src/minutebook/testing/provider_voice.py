"""An answer of the script, put into the words of the provider that was asked."""

from collections.abc import Mapping
from functools import partial

from minutebook.testing.provider_chat import chunks, completion, data
from minutebook.testing.provider_error import error_body
from minutebook.testing.provider_messages import event, events, message
from minutebook.testing.provider_meter import Measure, Meter
from minutebook.testing.provider_reply import Reply, json_reply
from minutebook.testing.provider_seal import sign
from minutebook.testing.provider_tally import tally
from minutebook.testing.received import ReceivedRequest
from minutebook.testing.script import Answer

STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


def rendered(
    answer: Answer, request: ReceivedRequest, measure: Measure, meter: Meter, now: int, ids: Mapping[str, str]
) -> Reply:
    """The whole reply, streamed if the client asked for that."""
    counted, body, number = tally(answer, measure, meter), request.body, request.number
    signed = partial(sign, prompt=measure.digests[-1])
    if not body.get("stream"):
        if request.provider == "openai":
            whole = completion(answer, counted, body, number, now)
        else:
            whole = message(answer, counted, body, number, signed)
        plain = json_reply(200, whole, ids)
        return Reply(200, plain.headers, plain.chunks, False, answer.cut_after, answer.before_seconds)
    if request.provider == "openai":
        stream = list(chunks(answer, counted, body, number, now))
    else:
        stream = list(events(answer, counted, body, number, signed))
    if answer.failure is not None:
        error = error_body(answer.failure, request.provider, ids["request-id"])
        stream.append(data(error) if request.provider == "openai" else event("error", error=error["error"]))
    return Reply(
        200,
        {**STREAM_HEADERS, **ids},
        tuple(part.encode(errors="replace") for part in stream),
        True,
        answer.cut_after,
        answer.before_seconds,
        answer.between_seconds,
    )
