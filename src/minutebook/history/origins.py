"""Where the messages of a view stand in the record, when nobody wrote it down."""

from collections.abc import Sequence

from minutebook.history.curation import Curated
from minutebook.record.message import Message, is_result, result_id, role_of, text_of


def origins(record: Sequence[Message], view: Sequence[Message]) -> Sequence[int | None]:
    """For each message of a view its place in the record, or None if it is not from there.

    A view of ours knows. In any other, a message is the record's own object, an equal one, or one that answers the same
    call or begins the same way: changed, but still that message. Each message of the record is found once, in order.
    """
    if isinstance(view, Curated) and len(view.origins) == len(view):
        return view.origins
    by_identity = {id(message): at for at, message in enumerate(record)}
    exact: dict[object, list[int]] = {}
    alike: dict[object, list[int]] = {}
    for at, message in enumerate(record):
        exact.setdefault(_exactly(message), []).append(at)
        alike.setdefault(_likeness(message), []).append(at)
    found: list[int | None] = []
    taken: set[int] = set()
    last = -1
    for message in view:
        place: int | None = by_identity.get(id(message))
        if place is None or place in taken:
            place = _next(exact.get(_exactly(message), ()), last, taken)
        if place is None:
            place = _next(alike.get(_likeness(message), ()), last, taken)
        if place is not None:
            taken.add(place)
            last = place
        found.append(place)
    _match_changed(record, view, found)
    return found


def _match_changed(record: Sequence[Message], view: Sequence[Message], found: list[int | None]) -> None:
    """Match a message that stands where exactly one of its role is missing, and says much the same."""
    taken = {place for place in found if place is not None}
    for position, message in enumerate(view):
        if found[position] is not None:
            continue
        low = next((place for place in reversed(found[:position]) if place is not None), -1)
        high = next((place for place in found[position + 1 :] if place is not None), len(record))
        missing = [
            place for place in range(low + 1, high) if place not in taken and role_of(record[place]) == role_of(message)
        ]
        if len(missing) == 1 and _much_the_same(text_of(record[missing[0]]), text_of(message)):
            found[position] = missing[0]
            taken.add(missing[0])


def _much_the_same(one: str, other: str) -> bool:
    half = (min(len(one), len(other)) + 1) // 2
    return half > 0 and (one[:half] == other[:half] or one[-half:] == other[-half:])


def _next(places: Sequence[int], last: int, taken: set[int]) -> int | None:
    free = [place for place in places if place not in taken]
    return next((place for place in free if place > last), free[0] if free else None)


def _exactly(message: Message) -> object:
    return repr(sorted(message.items(), key=lambda item: str(item[0])))


def _likeness(message: Message) -> object:
    """What survives when a message is shortened: the call it answers, or its first words."""
    role = role_of(message)
    return (role, result_id(message)) if is_result(message) else (role, text_of(message)[:40])
