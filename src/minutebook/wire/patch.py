"""What one JSON value says that another does not, so that the one can be had back from the other, byte for byte."""

from collections.abc import Mapping
from typing import Any

from minutebook.record.frozen import thawed


def difference(plain: Any, value: Any) -> dict[str, Any] | None:
    """What has to be done to `plain` to get `value`; None if they are the same, in the order of their keys too."""
    if isinstance(plain, Mapping) and isinstance(value, Mapping):
        return _between_objects(plain, value)
    if isinstance(plain, list) and isinstance(value, list) and len(plain) == len(value):
        changes = [
            [at, change] for at, pair in enumerate(zip(plain, value, strict=True)) if (change := difference(*pair))
        ]
        return {"of": len(plain), "at": changes} if changes else None
    return None if type(plain) is type(value) and plain == value else {"=": thawed(value)}


def patched(plain: Any, patch: Any) -> Any:
    """The value again. Where `plain` is no longer what the patch was made for, it stays as it is: what changed wins."""
    if not isinstance(patch, Mapping):
        return plain
    if "=" in patch:
        return thawed(patch["="])
    if isinstance(plain, list):
        changes = patch.get("at") if patch.get("of") == len(plain) else None
        return _patched_list(plain, changes) if isinstance(changes, list) else plain
    return _patched_object(plain, patch) if isinstance(plain, Mapping) else plain


def _between_objects(plain: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any] | None:
    patch: dict[str, Any] = {}
    missing = object()
    changes = {key: change for key in value if (change := difference(plain.get(key, missing), value[key]))}
    if changes:
        patch["in"] = changes
    gone = [key for key in plain if key not in value]
    if gone:
        patch["without"] = gone
    if list(_patched_object(plain, patch)) != list(value):
        patch["order"] = list(value)
    return patch or None


def _patched_object(plain: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    gone, changes, order = patch.get("without"), patch.get("in"), patch.get("order")
    made = {key: value for key, value in plain.items() if not (isinstance(gone, list) and key in gone)}
    for key, change in changes.items() if isinstance(changes, Mapping) else ():
        if key in made or (isinstance(change, Mapping) and "=" in change):
            made[key] = patched(made.get(key), change)
    if isinstance(order, list):
        rank = {key: place for place, key in enumerate(order) if isinstance(key, str)}
        made = dict(sorted(made.items(), key=lambda item: rank.get(item[0], len(rank))))
    return made


def _patched_list(plain: list[Any], changes: list[Any]) -> list[Any]:
    made = list(plain)
    for change in changes:
        if isinstance(change, list) and len(change) == 2 and type(change[0]) is int and 0 <= change[0] < len(made):
            made[change[0]] = patched(made[change[0]], change[1])
    return made
