"""The list of models, as each provider writes it."""

from datetime import UTC, datetime
from typing import Any

from minutebook.record.message import Provider
from minutebook.testing.script import Failure


def model_page(name: str, models: tuple[str, ...], created: int, provider: Provider) -> dict[str, Any] | Failure:
    """All models, or the one that `/name` asks for."""
    wanted = name.removeprefix("/")
    if not wanted:
        entries = [_entry(model, created, provider) for model in models]
        if provider == "openai":
            return {"object": "list", "data": entries}
        first, last = (models[0], models[-1]) if models else (None, None)
        return {"data": entries, "has_more": False, "first_id": first, "last_id": last}
    if wanted in models:
        return _entry(wanted, created, provider)
    return Failure(404, f"the model '{wanted}' does not exist", code="model_not_found", param="model")


def _entry(model: str, created: int, provider: Provider) -> dict[str, Any]:
    if provider == "openai":
        return {"id": model, "object": "model", "created": created, "owned_by": "minutebook"}
    born = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": model, "display_name": model, "created_at": born, "lifecycle": "active"}
