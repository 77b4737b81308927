"""Two hundred secrets of every kind that keys are made of, and a look at everything that may hold none of them."""

import base64
import json
import random
import string

LETTERS = string.ascii_letters + string.digits


def _text(chance, length, letters=LETTERS):
    return "".join(chance.choice(letters) for _ in range(length))


def _jwt(chance):
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256"}).encode()).decode().rstrip("=")
    return f"{head}.{_text(chance, 40)}.{_text(chance, 43)}"


SHAPES = (
    lambda chance: f"mb_{_text(chance, 12, '0123456789abcdef')}_{_text(chance, 43, LETTERS + '-_')}",
    lambda chance: f"sk-{_text(chance, 48)}",
    lambda chance: f"sk-proj-{_text(chance, 60, LETTERS + '-_')}a",
    lambda chance: f"sk-ant-api03-{_text(chance, 80, LETTERS + '-_')}a",
    lambda chance: f"sk-or-v1-{_text(chance, 64, '0123456789abcdef')}",
    lambda chance: f"sk_live_{_text(chance, 24)}",
    lambda chance: f"rk_test_{_text(chance, 24)}",
    lambda chance: f"AKIA{_text(chance, 16, string.ascii_uppercase + string.digits)}",
    lambda chance: f"AIza{_text(chance, 35, LETTERS + '-_')}",
    lambda chance: f"ghp_{_text(chance, 36)}",
    lambda chance: f"github_pat_{_text(chance, 22)}_{_text(chance, 59)}",
    lambda chance: f"glpat-{_text(chance, 20)}",
    lambda chance: f"xoxb-{_text(chance, 12, string.digits)}-{_text(chance, 24)}",
    lambda chance: f"hf_{_text(chance, 34)}",
    lambda chance: f"gsk_{_text(chance, 52)}",
    lambda chance: f"xai-{_text(chance, 80)}",
    lambda chance: f"pplx-{_text(chance, 48)}",
    lambda chance: f"npm_{_text(chance, 36)}",
    lambda chance: f"SG.{_text(chance, 22)}.{_text(chance, 43)}",
    _jwt,
)


def secrets(count=200, seed=7):
    """So many secrets, all different and the same each time."""
    chance = random.Random(seed)
    return [SHAPES[number % len(SHAPES)](chance) for number in range(count)]


def places(secret):
    """Headers and a body that carry a secret to every place that a client can put one.

    Names of headers, of models and of fields are a client's to choose as well.
    """
    headers = {
        "authorization": f"Bearer {secret}",
        "x-upstream-authorization": f"Bearer {secret}",
        "x-api-key": secret,
        "cookie": f"session={secret}",
        "x-request-id": secret,
        "user-agent": f"curl {secret}",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": f"a={secret}",
        "baggage": f"a={secret}",
        "idempotency-key": secret,
        "x-conversation-id": secret,
        "last-event-id": secret,
        "if-match": secret,
    }
    body = {
        "model": secret,
        "messages": [
            {"role": "system", "content": f"The password is {secret}."},
            {"role": "user", "content": [{"type": "text", "text": secret}]},
            {"role": secret, "content": secret},
        ],
        "tools": [{"type": "function", "function": {"name": secret, "parameters": {"default": secret}}}],
        "metadata": {"key": secret, secret: "value"},
        secret: secret,
    }
    return headers, body


def leaks(wanted, *, logs="", spans=(), metrics=b"", bodies=()):
    """Which secrets are to be found where they must not be: (secret, where). Parts of a secret count as well."""
    everything = {
        "logs": logs,
        "traces": "\n".join(told_by(span) for span in spans),
        "metrics": metrics.decode(),
        "error bodies": "\n".join(bodies),
    }
    return [
        (secret, where)
        for secret in wanted
        for where, text in everything.items()
        if secret in text or tail_of(secret) in text
    ]


def tail_of(secret):
    """Its last part, which says enough: a redaction that leaves it has redacted nothing."""
    return secret[-16:]


def told_by(span):
    """All that an exported span says."""
    events = [(event.name, dict(event.attributes or {})) for event in span.events]
    resource = dict(span.resource.attributes)
    state = span.context.trace_state.to_header()
    return repr((span.name, dict(span.attributes or {}), events, span.status.description, resource, state))
