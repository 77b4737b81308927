"""The difference of two JSON values as a patch, so that one can be restored from the other byte for byte.

The patch of an object has the keys `in` (patches of added and changed values), `without` (removed keys) and `order` (of all
keys). The patch of a list has `of` (the length of the list) and `at` (changed items). The patch `{"=": value}` replaces
any value.
"""

from collections.abc import Mapping
from typing import Any

from minutebook.record.message import plain_copy


def patch_between(base: Any, value: Any) -> dict[str, Any] | None:
    """The patch that turns `base` into `value`; None if they are equal, including the order of keys."""
    if isinstance(base, Mapping) and isinstance(value, Mapping):
        return _object_patch(base, value)
    if isinstance(base, list) and isinstance(value, list) and len(base) == len(value):
        changes = [
            [index, change]
            for index, pair in enumerate(zip(base, value, strict=True))
            if (change := patch_between(*pair))
        ]
        return {"of": len(base), "at": changes} if changes else None
    return None if type(base) is type(value) and base == value else {"=": plain_copy(value)}


def with_patch(base: Any, patch: Any) -> Any:
    """`base` with the patch applied. Parts of the patch that no longer match `base` are ignored."""
    if not isinstance(patch, Mapping):
        return base
    if "=" in patch:
        return plain_copy(patch["="])
    if isinstance(base, list):
        changes = patch.get("at") if patch.get("of") == len(base) else None
        return _list_with_changes(base, changes) if isinstance(changes, list) else base
    return _object_with_patch(base, patch) if isinstance(base, Mapping) else base


def _object_patch(base: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any] | None:
    patch: dict[str, Any] = {}
    missing = object()
    changes = {key: change for key in value if (change := patch_between(base.get(key, missing), value[key]))}
    if changes:
        patch["in"] = changes
    removed = [key for key in base if key not in value]
    if removed:
        patch["without"] = removed
    if list(_object_with_patch(base, patch)) != list(value):
        patch["order"] = list(value)
    return patch or None


def _object_with_patch(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    removed, changes, order = patch.get("without"), patch.get("in"), patch.get("order")
    result = {key: value for key, value in base.items() if not (isinstance(removed, list) and key in removed)}
    for key, change in changes.items() if isinstance(changes, Mapping) else ():
        if key in result or (isinstance(change, Mapping) and "=" in change):
            result[key] = with_patch(result.get(key), change)
    if isinstance(order, list):
        rank = {key: index for index, key in enumerate(order) if isinstance(key, str)}
        result = dict(sorted(result.items(), key=lambda item: rank.get(item[0], len(rank))))
    return result


def _list_with_changes(base: list[Any], changes: list[Any]) -> list[Any]:
    result = list(base)
    for change in changes:
        if isinstance(change, list) and len(change) == 2 and type(change[0]) is int and 0 <= change[0] < len(result):
            result[change[0]] = with_patch(result[change[0]], change[1])
    return result
