"""The handles on a stored conversation: `AsyncConversation`, and `Conversation` for code that is not async.

Start with `async_conversation`.
"""
