"""Conversations for the inspector's tests, and the inspector of `minutebook inspect` behind a real port."""

import json
import threading
from contextlib import contextmanager

import uvicorn

from minutebook.cli.server import listener_on, url_of
from minutebook.service.inspector.app import LocalAccess, create_inspector
from minutebook.service.inspector.policy import ReplayPolicy
from minutebook.service.inspector.sources.files import FileSource


def session(turns=6, *, words=60, text="order", model="gpt-4o"):
    """A session with tool calls: each turn is a request, a call, its result and an answer that quotes the result."""
    messages = [{"role": "system", "content": "You help with orders."}]
    for turn in range(turns):
        line = f"the order {turn} of the customer was delivered on day {turn}"
        result = "\n".join([line, *(f"row {turn}-{row} {text}" for row in range(words))])
        call = {"id": f"call-{turn}", "type": "function"}
        call["function"] = {"name": "lookup", "arguments": json.dumps({"query": f"{text} {turn}"})}
        messages += [
            {"role": "user", "content": f"Where is {text} {turn}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call-{turn}", "content": result},
            {"role": "assistant", "content": f"I looked it up:\n{line}"},
        ]
    return {"id": f"session-{text}", "model": model, "messages": messages}


def write_sessions(path, *sessions):
    path.write_text("".join(f"{json.dumps(item)}\n" for item in sessions))
    return path


@contextmanager
def listening_inspector(source):
    """The pages of a source behind a real port: the URL that is opened first, and the address of the server."""
    access = LocalAccess()
    with listener_on("127.0.0.1", 0) as listener:
        app = create_inspector(source, access)
        config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started and thread.is_alive():
                threading.Event().wait(0.005)
            yield url_of(listener), access.sign_in_path
        finally:
            server.should_exit = True
            thread.join(20)


@contextmanager
def inspecting(*paths, **policy):
    """The inspector of files."""
    source = FileSource(paths, ReplayPolicy(**policy))
    source.start()
    with listening_inspector(source) as addresses:
        yield addresses
