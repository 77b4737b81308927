"""Closing a conversation leaves no task, thread or message behind."""

import subprocess
import sys

import pytest

from tests.servers import require_postgres, shared

PROGRAM = """
import sys
from minutebook import Conversation

conversation = Conversation("n", store=sys.argv[1], model="gpt-4o")
conversation.append("x")
conversation.view()
conversation.close()
with Conversation("n", store=sys.argv[1], model="gpt-4o") as again:
    print(len(again))
"""


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_closed_conversation_leaves_nothing_on_standard_error(backend, tmp_path):
    url = f"sqlite:///{tmp_path / 'a.db'}"
    if backend == "postgres":
        require_postgres()
        url = shared.empty()

    done = subprocess.run([sys.executable, "-c", PROGRAM, url], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("1\n", "")
