"""Twelve tasks with a stored conversation. Run one with `python -m examples.tasks.03_chat_on_sqlite`."""
