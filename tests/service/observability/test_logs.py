import asyncio
import io
import json
import logging
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.conversation.minutes import HistoryPruned
from minutebook.service.observability.logs import REQUEST_ID, JsonLines, log_pruning, write_logs_to

FACT = HistoryPruned(
    conversation="conv_1",
    loaded=40,
    preserved=10,
    pruned=30,
    tokens_before=9_000,
    tokens_after=1_200,
    mode="on",
    policy="retention",
)


def lines_of(act, **options):
    stream = io.StringIO()
    with write_logs_to(stream, **options):
        act()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_pruning_decision_is_one_line_with_all_its_numbers():
    (line,) = lines_of(lambda: log_pruning(FACT))

    assert line["message"] == "pruned"
    wanted = ("conversation", "loaded", "preserved", "pruned", "tokens_before", "tokens_after", "mode", "policy")
    assert [line[name] for name in wanted] == ["conv_1", 40, 10, 30, 9_000, 1_200, "on", "retention"]


def test_the_time_is_in_utc():
    (line,) = lines_of(lambda: log_pruning(FACT))

    assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(max_size=60), JSON)
def test_every_record_is_one_line_of_json(message, value):
    logger = logging.getLogger("minutebook.service")
    lines = lines_of(lambda: logger.warning(message, extra={"value": value}))

    assert len(lines) == 1
    assert {"time", "level", "logger", "message", "value"} <= set(lines[0])


def test_a_line_with_the_wrong_arguments_is_still_a_line():
    logger, wrong = logging.getLogger("minutebook.service"), "%d and %d"

    (line,) = lines_of(lambda: logger.warning(wrong, "x"))
    assert line["message"] == "%d and %d"


SECRET = "sk-" + "a1" * 20


def broken(said):
    raise KeyError(said)


def fail():
    """Log an error with another one as its cause, and secrets everywhere."""
    try:
        try:
            broken("what alice said")
        except KeyError as error:
            raise ValueError(f"what bob said, with {SECRET}") from error
    except ValueError:
        logger = logging.getLogger("minutebook.service")
        logger.exception("it failed: %s", SECRET, extra={"note": f"a {SECRET} b"})


def written(handler_parts, act):
    """What is written by a handler that has only these of our parts."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    for part in handler_parts:
        handler.addFilter(part) if isinstance(part, logging.Filter) else handler.setFormatter(part)
    with write_logs_to(io.StringIO()):
        logging.getLogger("minutebook").handlers = [handler]
        act()
    return stream.getvalue()


def test_an_error_is_logged_with_its_type_and_frames_and_without_its_message():
    (line,) = lines_of(fail)

    assert [error["type"] for error in line["error"]] == ["ValueError", "KeyError"]
    assert line["error"][0]["at"][-1].startswith("test_logs.py:")
    assert "said" not in json.dumps(line)


def test_the_formatter_alone_redacts_secrets_and_error_messages():
    text = written([JsonLines()], fail)

    line = json.loads(text)
    assert (line["message"], line["note"]) == ("it failed: [redacted]", "a [redacted] b")
    assert [error["type"] for error in line["error"]] == ["ValueError", "KeyError"]
    assert "said" not in text


def test_tasks_of_a_request_are_logged_with_its_id():
    async def answering():
        known = REQUEST_ID.set("req_1")
        run = asyncio.create_task(detached())
        REQUEST_ID.reset(known)
        await run

    async def detached():
        log_pruning(FACT)

    (line,) = lines_of(lambda: asyncio.run(answering()))
    assert line["request_id"] == "req_1"


@pytest.mark.parametrize(
    ("name", "told"), [("uvicorn.access", 0), ("uvicorn.error", 1), ("httpx2", 0), ("minutebook.audit", 1)]
)
def test_addresses_and_queries_are_not_logged(name, told):
    assert len(lines_of(lambda: logging.getLogger(name).info("GET /v1/x?q=1"))) == told


def test_shadow_mode_sends_everything_and_saves_nothing():
    shadow = HistoryPruned(**{name: getattr(FACT, name) for name in FACT.__dataclass_fields__} | {"mode": "shadow"})

    assert (FACT.sent, FACT.saved) == (10, 7_800)
    assert (shadow.sent, shadow.saved) == (40, 0)
