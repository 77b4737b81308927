"""Every endpoint of the service, as its own OpenAPI document lists them, asked with ids of one's choice."""

import re

HARMLESS = {"type": "message", "role": "user", "content": "hello"}
BODIES = {
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "hello"}]},
    "/v1/responses": {"model": "m", "input": "hello"},
    "/v1/responses/input_tokens": {"model": "m", "input": "hello"},
    "/v1/responses/compact": {"model": "m", "input": "hello"},
    "/v1/conversations/{conversation_id}/rewind": {"from_item": "msg_0"},
    "/v1/conversations/{conversation_id}": {"metadata": {}},
    "/v1/conversations/{conversation_id}/items": {"items": [HARMLESS]},
    "/threads/{thread_id}/messages": {"content": "hello"},
}
"""What an endpoint needs in its body; all others take an empty one."""
METHODS = ("get", "put", "patch", "post", "delete")


def operations(document):
    """Method and template of each endpoint; those that remove things last."""
    found = [(method, path) for path, item in sorted(document["paths"].items()) for method in METHODS if method in item]
    return sorted(found, key=lambda one: (one[0] == "delete", one[1].endswith(("/erase", "/revert", "/cancel"))))


def names_in(path):
    return re.findall(r"{(\w+)}", path)


def asked(http, method, path, ids, **options):
    """The answer of an endpoint with these ids in its path."""
    if method in {"put", "patch", "post"}:
        options.setdefault("json", BODIES.get(path, {}))
    return http.request(method.upper(), re.sub(r"{(\w+)}", lambda match: ids[match[1]], path), **options)
