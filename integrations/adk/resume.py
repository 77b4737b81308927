"""A separate process that continues a session: `python -m integrations.adk.resume URL STORE SESSIONS STRATEGY`."""

import sys

from google.adk.sessions.sqlite_session_service import SqliteSessionService

from integrations.adk.conftest import WINDOW, RunnerHarness
from minutebook import ModelInfo, open_store
from minutebook.integrations.adk.compaction import AdkCompaction


def main(base_url, store, sessions, strategy):
    model = ModelInfo("gpt-4o", max_input_tokens=WINDOW)
    plugin = AdkCompaction(open_store(store), model, strategy)
    RunnerHarness(base_url, plugin, sessions=SqliteSessionService(sessions)).run("And what does it say?")


if __name__ == "__main__":
    main(*sys.argv[1:])
