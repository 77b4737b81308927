"""`minutebook inspect` in a process of its own."""

import json
import signal
import subprocess

import httpx2
import pytest

from tests.cli.conftest import PROGRAM
from tests.programs import Program


def line(turn):
    return f'{{"role": "user", "content": "Where is parcel {turn}?"}}, {{"role": "assistant", "content": "Here."}}'


@pytest.fixture
def transcript(tmp_path):
    path = tmp_path / "session.json"
    path.write_text(f'{{"id": "a", "messages": [{line(1)}, {line(2)}]}}')
    return path


def first_page(*arguments):
    """What the command prints, the page behind that address, and the exit code after Ctrl-C."""
    process = Program("inspect", *map(str, arguments), "--json")
    try:
        address = json.loads(process.stdout.readline())["url"]
        with httpx2.Client(trust_env=False, timeout=30, follow_redirects=True) as http:
            page = http.get(address)
        process.send_signal(signal.SIGINT)
        process.wait(30)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)
        process.stdout.close()
        process.stderr.close()
    return address, page


def test_it_serves_the_pages_of_a_file_on_loopback(transcript):
    address, page = first_page(transcript)

    assert address.startswith("http://127.0.0.1:")
    assert page.status_code == 200
    assert "Where is parcel 1?" in page.text


def test_it_serves_the_conversations_of_a_database(transcript, tmp_path):
    database = tmp_path / "chat.db"
    subprocess.run([*PROGRAM, "import", transcript, "--db", database], check=True, capture_output=True)

    _, page = first_page(database)

    assert "Where is parcel 1?" in page.text


def test_a_missing_file_is_an_error_before_anything_is_served(tmp_path):
    command = [*PROGRAM, "inspect", tmp_path / "missing.json", "--no-browser"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 3
    assert "missing.json" in result.stderr


def test_a_manager_that_does_not_exist_is_an_error_before_anything_is_served(transcript):
    command = [*PROGRAM, "inspect", transcript, "--no-browser", "--manager", "nonsense"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert result.returncode == 2
    assert "nonsense" in result.stderr
