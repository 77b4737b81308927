"""Find the messages of a view in the record, for views of managers that do not report origins."""

from collections.abc import Sequence

from minutebook.history.curation import Changed, Curated, NoteChain, NoteStatus, ViewNote
from minutebook.record.message import Message, is_result, result_id, role_of, text_of


def curated_of(record: Sequence[Message], view: Sequence[Message]) -> Curated:
    """Any view of these messages with the origins of its messages. The reasons of `Changed` messages become notes."""
    if isinstance(view, Curated) and Changed not in map(type, view):
        return view
    indexes = origins(record, view)
    changed = {
        index: ViewNote(NoteStatus.CHANGED, message.because)
        for message, index in zip(view, indexes, strict=True)
        if index is not None and isinstance(message, Changed)
    }
    messages = [dict(message) if isinstance(message, Changed) else message for message in view]
    note_chains = view.note_chains if isinstance(view, Curated) else ()
    repairs = view.repairs if isinstance(view, Curated) else ()
    return Curated(
        messages, indexes, (*note_chains, NoteChain(changed, None)) if changed else note_chains, repairs=repairs
    )


def origins(record: Sequence[Message], view: Sequence[Message]) -> Sequence[int | None]:
    """The index in the record of each message of a view; None for an added message.

    A `Curated` view has its origins. In any other view, a message matches the same object, an equal message, or one that
    answers the same call or starts with the same text. Each message of the record is matched once; further messages that
    equal it are duplicates and have the same index. If several match, the next one after the previous match is preferred.
    """
    if isinstance(view, Curated) and len(view.origins) == len(view):
        return view.origins
    by_identity: dict[int, int | None] = {}
    for index, message in enumerate(record):  # an object that the record has twice is found by its content
        by_identity[id(message)] = None if id(message) in by_identity else index
    exact_matches: dict[object, list[int]] = {}
    similar_matches: dict[object, list[int]] = {}
    for index, message in enumerate(record):
        exact_matches.setdefault(_exact_key(message), []).append(index)
        similar_matches.setdefault(_similarity_key(message), []).append(index)
    result: list[int | None] = []
    matched: set[int] = set()
    last_match = -1
    for message in view:
        match: int | None = by_identity.get(id(message))
        if match is None or match in matched:
            # Several changed messages may have the same text, which is also that of an earlier fold of such a message.
            exact = () if isinstance(message, Changed) else exact_matches.get(_exact_key(message), ())
            match = _next_match(exact, last_match, matched)
            if match is None and exact:
                result.append(exact[-1])
                continue
        if match is None:
            match = _next_match(similar_matches.get(_similarity_key(message), ()), last_match, matched)
        if match is not None:
            matched.add(match)
            last_match = match
        result.append(match)
    _match_changed(record, view, result)
    return result


def _match_changed(record: Sequence[Message], view: Sequence[Message], matches: list[int | None]) -> None:
    """Match the remaining messages of the view with unmatched messages of the record between their neighbours' matches.

    A message of the record matches if it is the only one there with the same role and its text is similar. The text of
    `Changed` messages is not compared: they are matched in order if the record has as many messages with their role.
    """
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
        if isinstance(message, Changed):
            is_match = len(candidates) == _changed_count(view, matches, view_index)
        else:
            is_match = len(candidates) == 1 and _are_similar(text_of(record[candidates[0]]), text_of(message))
        if is_match:
            matches[view_index] = candidates[0]
            matched.add(candidates[0])


def _changed_count(view: Sequence[Message], matches: Sequence[int | None], start: int) -> int:
    """The number of unmatched `Changed` messages with the role of the first one, up to the next match."""
    count = 0
    for message, match in zip(view[start:], matches[start:], strict=True):
        if match is not None:
            break
        count += isinstance(message, Changed) and role_of(message) == role_of(view[start])
    return count


def _are_similar(left: str, right: str) -> bool:
    """Whether the texts have the same start or the same end, half as long as the shorter text."""
    half = (min(len(left), len(right)) + 1) // 2
    return half > 0 and (left[:half] == right[:half] or left[-half:] == right[-half:])


def _next_match(indexes: Sequence[int], last_match: int, matched: set[int]) -> int | None:
    unmatched = [index for index in indexes if index not in matched]
    return next((index for index in unmatched if index > last_match), unmatched[0] if unmatched else None)


def _exact_key(message: Message) -> object:
    return repr(sorted(message.items(), key=lambda item: str(item[0])))


def _similarity_key(message: Message) -> object:
    """The properties that a shortened message has in common with the original: its call, or the start of its text."""
    role = role_of(message)
    return (role, result_id(message)) if is_result(message) else (role, text_of(message)[:40])
