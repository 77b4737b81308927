import json
import logging

import pytest

from minutebook.service.observability.logs import (
    MAX_TEXT_CHARACTERS,
    REDACTED,
    needs_redaction,
    value_without_secrets,
    without_secrets,
)
from tests.service.guarded import Guarded
from tests.service.secrets import SHAPES, leaks, places, secrets, tail_of

PLANTED = secrets()


def planted_in(guarded):
    """What the app answers to requests that carry the secrets everywhere."""
    answers = []
    for number, secret in enumerate(PLANTED):
        headers, body = places(secret)
        content = json.dumps(body).encode()[:900]
        paths = ("/strict", "/broken", "/logs", "/things", "/nowhere")
        asked = [
            ("POST", paths[number % len(paths)], {"content": content, "headers": headers}),
            ("GET", f"/open?number={secret}", {"headers": headers}),
            ("GET", f"/things/{secret}", {"headers": headers}),
        ]
        answers += guarded.ask(*asked)
    return answers


@pytest.mark.parametrize("with_keys", [False, True], ids=["open", "with keys"])
def test_of_two_hundred_planted_secrets_none_gets_out(with_keys):
    guarded = Guarded()
    if with_keys:
        guarded.key()
    answers = planted_in(guarded)

    found = leaks(
        PLANTED,
        logs=guarded.watched.lines.getvalue(),
        spans=guarded.watched.spans.get_finished_spans(),
        metrics=guarded.service.metrics.render(),
        bodies=[answer.text + repr(answer.headers) for answer in answers],
    )
    assert found == []
    assert len(PLANTED) == len(set(PLANTED)) == 200
    statuses = {answer.status_code for answer in answers}
    assert {400, 401, 404, 500} - ({401} if not with_keys else set()) <= statuses


def test_what_looks_for_leaks_finds_them():
    secret = PLANTED[1]

    assert leaks([secret], logs=f"a {secret} b") == [(secret, "logs")]
    assert leaks([secret], bodies=[tail_of(secret)]) == [(secret, "error bodies")]
    assert leaks([secret], metrics=secret.encode()) == [(secret, "metrics")]


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_every_kind_of_key_is_taken_out_of_any_text(number):
    for secret in PLANTED[number :: len(SHAPES)]:
        for text in (
            secret,
            f"key={secret}, more",
            f'{{"a": "{secret}"}}',
            f"Authorization: Bearer {secret}",
            f"({secret})",
        ):
            assert tail_of(secret) not in without_secrets(text)
        assert tail_of(secret) not in json.dumps(value_without_secrets({"a": [{"b": secret}], secret: 1}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgres://app:hunter2@db:5432/chat", f"postgres://{REDACTED}@db:5432/chat"),
        ("Authorization: Basic dXNlcjpwYXNz", f"Authorization: {REDACTED}"),
        ("password=hunter2&x=1", f"password={REDACTED}&x=1"),
        ('{"api_key": "hunter2"}', f'{{"api_key": "{REDACTED}"}}'),
        (
            "a -----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY----- b",
            f"a {REDACTED} b",
        ),
    ],
    ids=["url", "basic", "query", "json", "pem"],
)
def test_passwords_and_private_keys_are_taken_out_too(text, expected):
    assert without_secrets(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "GET /v1/conversations/{conversation_id}/items 200",
        "conv_0192f3a1b2c37d4e8f60718293a4b5c6",
        "req_5f1c0d2e3b4a59687766554433221100",
        "gpt-4o-mini-2024-07-18",
        "the window of 128,000 tokens is full: 3 turns summarized",
        "a risk-averse task-oriented desk-based person",
        "2026-11-16T03:31:03+00:00",
        "sqlite:///chat.db: is locked; try again",
    ],
)
def test_what_is_no_secret_is_left_alone(text):
    assert not needs_redaction(text)


@pytest.mark.parametrize(
    "piece",
    [
        "x",
        "sk-",
        "eyJ-",
        "eyJ.",
        "://a:",
        "-----BEGIN PRIVATE KEY-----",
        "bearer ",
        "password=",
        "secret: ",
        "SG.",
        "a-",
    ],
)
def test_a_very_long_text_is_cut_and_never_keeps_the_server_busy(piece):
    assert len(without_secrets(piece * 1_000_000)) <= MAX_TEXT_CHARACTERS + 1 + len(REDACTED) * MAX_TEXT_CHARACTERS


def test_a_value_under_a_private_name_goes_whatever_it_is():
    cleared = value_without_secrets(
        {"Authorization": "xyz", "cookies": ["a"], "x-api-key": {"a": 1}, "tokens": 5, "token": "abc", "ok": None}
    )

    assert cleared == {
        "Authorization": REDACTED,
        "cookies": REDACTED,
        "x-api-key": REDACTED,
        "tokens": 5,
        "token": REDACTED,
        "ok": None,
    }


def test_no_logger_of_ours_is_left_changed():
    before = logging.getLogger("minutebook").handlers[:]
    with Guarded().logging():
        assert logging.getLogger("minutebook").handlers != before

    assert logging.getLogger("minutebook").handlers == before
