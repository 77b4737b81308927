from minutebook.formats.conversation import (
    Format as Format,
    SourceConversation as SourceConversation,
    SourceMessage as SourceMessage,
)
from minutebook.formats.registry import (
    Converted as Converted,
    convert as convert,
    detect as detect,
    format_named as format_named,
    formats as formats,
    read as read,
)
from minutebook.formats.source import (
    Skipped as Skipped,
    Source as Source,
    Value as Value,
)

__all__ = [
    "Converted",
    "Format",
    "Skipped",
    "Source",
    "SourceConversation",
    "SourceMessage",
    "Value",
    "convert",
    "detect",
    "format_named",
    "formats",
    "read",
]
