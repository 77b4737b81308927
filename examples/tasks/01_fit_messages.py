"""Task 1: which of these messages to send with a budget of 8,000 tokens."""

from examples.tasks.data import support_chat
from minutebook import view_of

to_send = view_of(support_chat(), 8_000).messages
