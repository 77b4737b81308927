"""The server's process: start, errors, and exit with the process that started it."""

import os
import select
import socket
import subprocess
import sys

import pytest

from minutebook.errors import InvalidSetting
from minutebook.testing import LocalModel, ModelDidNotStart
from minutebook.testing.local_model import smollm2


def port_of(model):
    return int(model.anthropic_url.rpartition(":")[2])


def test_closing_ends_the_process_and_frees_the_port():
    model = LocalModel(max_context_tokens=256)
    pid = model._process.pid

    model.close()
    model.close()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with socket.create_server(("127.0.0.1", port_of(model))):
        pass


def test_closing_does_not_wait_for_a_running_answer():
    with LocalModel(max_context_tokens=256) as model, socket.create_connection(("127.0.0.1", port_of(model))) as client:
        body = b'{"messages": [{"role": "user", "content": "Tell a story."}], "ignore_eos": true, "stream": true}'
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: l\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        assert client.recv(15) == b"HTTP/1.1 200 OK"

        model.close()


def test_ctrl_c_in_a_terminal_does_not_stop_the_server(local):
    assert os.getpgid(local._process.pid) != os.getpgrp()


def test_the_server_ends_when_its_owner_is_killed():
    code = (
        "import sys; from minutebook.testing import LocalModel; model = LocalModel(max_context_tokens=256)\n"
        "print(model._process.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        server = os.pidfd_open(int(owner.stdout.readline()))
        owner.kill()

    try:
        assert select.select([server], [], [], 30)[0] == [server]
    finally:
        os.close(server)


def test_the_window_is_rounded_up_by_the_server():
    with LocalModel(max_context_tokens=300) as model:
        assert model.max_context_tokens == 512


def test_a_window_larger_than_the_model_was_trained_with_is_refused():
    with pytest.raises(InvalidSetting, match="max_context_tokens=9000: expected at most 8192"):
        LocalModel(max_context_tokens=9000)


def test_given_weights_are_served_under_their_file_name(tmp_path):
    weights = tmp_path / "mine.gguf"
    weights.symlink_to(smollm2())

    with LocalModel(weights=weights, max_context_tokens=256) as model:
        assert model.model == "mine"


def test_invalid_weights_are_an_error_with_the_servers_log(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))

    with pytest.raises(ModelDidNotStart, match="broken did not start: gguf_init") as caught:
        LocalModel(weights=broken)
    assert "failed to load model" in caught.value.log


def test_an_invalid_template_is_an_error():
    with pytest.raises(ModelDidNotStart, match="did not start: common_chat_templates_init: error"):
        LocalModel(chat_template="{% for %}", max_context_tokens=256)


def test_a_start_that_exceeds_start_seconds_is_an_error():
    with pytest.raises(ModelDidNotStart, match=r"it was not ready after 0\.001 seconds"):
        LocalModel(start_seconds=0.001)
