"""Limits of connections: headers that are too large or too slow, and the number of connections."""

import re
import socket
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from tests.service.serving import served

CONFIG = "limits: {header_bytes: 2000, connections: 5}\nserver: {header_seconds: 0.2, keep_alive_seconds: 1}\n"


@pytest.fixture
def address(tmp_path):
    with served(config=CONFIG, folder=tmp_path) as here:
        url = urlsplit(here.url)
        yield url.hostname, url.port


def received(connection):
    """Everything until the server closes the connection."""
    connection.settimeout(20)
    content = b""
    while piece := connection.recv(65_536):
        content += piece
    return content


HEAD = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"


@pytest.mark.parametrize(("size", "status"), [(1_900, b"200"), (2_100, b"431")])
def test_the_size_of_headers_is_limited(address, size, status):
    with socket.create_connection(address) as connection:
        connection.sendall(HEAD + b"x-a: " + b"a" * (size - 60) + b"\r\n\r\n")
        assert received(connection).split()[1] == status


def test_headers_without_an_end_are_refused(address):
    with socket.create_connection(address) as connection:
        connection.sendall(HEAD + b"x-a: " + b"a" * 3_000)
        assert received(connection).split()[1] == b"431"


@pytest.mark.parametrize("start", [b"", HEAD], ids=["nothing", "unfinished headers"])
def test_the_time_of_headers_is_limited(address, start):
    with socket.create_connection(address) as connection:
        connection.sendall(start)
        assert received(connection).split()[1] == b"408"


def test_the_number_of_connections_is_limited(address):
    with ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(address)) for _ in range(6)]
        connections[-1].sendall(HEAD + b"\r\n")
        assert received(connections[-1]).split()[1] == b"503"
    with socket.create_connection(address) as connection:
        connection.sendall(HEAD + b"\r\n")
        received(connection)


LARGE_BODY = b"POST /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000000\r\n\r\n"


def test_a_request_that_is_refused_before_its_body_may_send_the_body_and_another_request(address):
    with socket.create_connection(address) as connection:
        connection.sendall(LARGE_BODY)
        content = connection.recv(1)
        for _ in range(10):
            connection.sendall(b"x" * 100_000)
            time.sleep(0.005)  # the server reads the body in several pieces
        connection.sendall(HEAD + b"\r\n")
        content += received(connection)
    assert re.findall(rb"HTTP/1.1 (\d+)", content) == [b"405", b"200"]


def test_the_time_of_a_body_whose_request_was_refused_is_limited(address):
    with socket.create_connection(address) as connection:
        connection.sendall(LARGE_BODY)
        connection.recv(1)
        with pytest.raises(OSError, match=r"reset|pipe"):  # noqa: PT012 - any of them may notice the end
            for _ in range(2_000):
                connection.sendall(b"x")
                time.sleep(0.01)
