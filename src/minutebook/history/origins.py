"""Find the messages of a view in the record, for views of managers that do not report origins."""

from collections.abc import Sequence

from minutebook.history.curation import Curated
from minutebook.record.message import Message, is_result, result_id, role_of, text_of


def origins(record: Sequence[Message], view: Sequence[Message]) -> Sequence[int | None]:
    """For each message of a view its index in the record, or None if it was added.

    A `Curated` view has its origins. In any other view, a message matches the same object, an equal message, or one that
    answers the same call or starts with the same text. Each message of the record is matched once, in order.
    """
    if isinstance(view, Curated) and len(view.origins) == len(view):
        return view.origins
    by_identity = {id(message): index for index, message in enumerate(record)}
    exact: dict[object, list[int]] = {}
    similar: dict[object, list[int]] = {}
    for index, message in enumerate(record):
        exact.setdefault(_exact_key(message), []).append(index)
        similar.setdefault(_similarity_key(message), []).append(index)
    result: list[int | None] = []
    matched: set[int] = set()
    last = -1
    for message in view:
        match: int | None = by_identity.get(id(message))
        if match is None or match in matched:
            match = _next_match(exact.get(_exact_key(message), ()), last, matched)
        if match is None:
            match = _next_match(similar.get(_similarity_key(message), ()), last, matched)
        if match is not None:
            matched.add(match)
            last = match
        result.append(match)
    _match_changed(record, view, result)
    return result


def _match_changed(record: Sequence[Message], view: Sequence[Message], matches: list[int | None]) -> None:
    """Match the messages between two matches with the only message of their role there, if the texts are similar."""
    matched = {index for index in matches if index is not None}
    for view_index, message in enumerate(view):
        if matches[view_index] is not None:
            continue
        low = next((index for index in reversed(matches[:view_index]) if index is not None), -1)
        high = next((index for index in matches[view_index + 1 :] if index is not None), len(record))
        candidates = [
            index
            for index in range(low + 1, high)
            if index not in matched and role_of(record[index]) == role_of(message)
        ]
        if len(candidates) == 1 and _are_similar(text_of(record[candidates[0]]), text_of(message)):
            matches[view_index] = candidates[0]
            matched.add(candidates[0])


def _are_similar(text: str, other: str) -> bool:
    half = (min(len(text), len(other)) + 1) // 2
    return half > 0 and (text[:half] == other[:half] or text[-half:] == other[-half:])


def _next_match(indexes: Sequence[int], last: int, matched: set[int]) -> int | None:
    free = [index for index in indexes if index not in matched]
    return next((index for index in free if index > last), free[0] if free else None)


def _exact_key(message: Message) -> object:
    return repr(sorted(message.items(), key=lambda item: str(item[0])))


def _similarity_key(message: Message) -> object:
    """The properties that a shortened message has in common with the original: its call, or the start of its text."""
    role = role_of(message)
    return (role, result_id(message)) if is_result(message) else (role, text_of(message)[:40])
