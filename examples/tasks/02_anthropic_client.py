"""Task 2: the same with the messages of the anthropic client, tool calls included."""

from anthropic import Anthropic

from examples.tasks.data import SYSTEM, claude_chat
from minutebook import view_of

client = Anthropic()

client.messages.create(
    model="claude-sonnet-4-5",
    max_tokens=1024,
    **view_of(claude_chat(), 8_000, system=SYSTEM, provider="anthropic").anthropic(),
)
