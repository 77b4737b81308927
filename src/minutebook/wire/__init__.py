"""Provider formats to and from the record, without loss: chat completions, Responses items, Anthropic messages.

This package only converts formats; `history` decides which messages are sent. Start with `chat`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "anthropic": ("AnthropicMessages", "from_anthropic", "to_anthropic"),
    "chat": (
        "entry_from_json",
        "entry_to_json",
        "entry_to_provider_message",
        "new_entries",
        "provider_message_to_entry",
    ),
    "responses": ("items_to_messages", "message_to_items"),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
