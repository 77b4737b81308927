from minutebook.wire.anthropic import (
    AnthropicMessages as AnthropicMessages,
    from_anthropic as from_anthropic,
    to_anthropic as to_anthropic,
)
from minutebook.wire.chat import (
    entry_from_json as entry_from_json,
    entry_to_json as entry_to_json,
    entry_to_provider_message as entry_to_provider_message,
    new_entries as new_entries,
    provider_message_to_entry as provider_message_to_entry,
)
from minutebook.wire.responses import (
    items_to_messages as items_to_messages,
    message_to_items as message_to_items,
)

__all__ = [
    "AnthropicMessages",
    "entry_from_json",
    "entry_to_json",
    "entry_to_provider_message",
    "from_anthropic",
    "items_to_messages",
    "message_to_items",
    "new_entries",
    "provider_message_to_entry",
    "to_anthropic",
]
