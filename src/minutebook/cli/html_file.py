"""Write a conversation as one HTML file: what the newest request would send, and why."""

from collections.abc import Collection
from pathlib import Path

from minutebook.cli.files import FileConversation
from minutebook.service.inspector.policy import ReplayPolicy, replay
from minutebook.service.inspector.share.export import export_html
from minutebook.service.inspector.sources.files import file_conversation


def write_html(selected: FileConversation, path: str, policy: ReplayPolicy, redact: Collection[str]) -> int:
    """Replay a conversation and write the file. Returns the number of bytes.

    Raises:
        OSError: the file cannot be written.
    """
    name = Path(selected.file).name
    conversation = file_conversation(selected.id or name, name, selected.conversation, policy.model)
    replay(conversation, policy)
    if conversation.failure is not None:
        raise conversation.failure
    return Path(path).write_bytes(export_html(conversation, redact=redact).encode("utf-8", "backslashreplace"))
