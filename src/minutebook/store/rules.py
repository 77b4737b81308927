"""What a store checks, whatever it keeps its rows in: names, how a record grows, where a fold may stand.

Pure functions from a header to a header, so that every store decides alike. A store reads the header under its lock,
asks here, and writes what it is told.

Trimming: the one loss that is allowed in the record besides purging and erasing.

What tools were asked and what they answered is most of a long conversation and the first that nobody needs any more. So
the content of a result and the arguments of a call may be replaced by less; who said what to whom, and which result
answers which call, stay as they were.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from minutebook.errors import BrokenConversation, FoldConflict, InvalidSetting, VersionConflict
from minutebook.record.entry import ConversationEntry
from minutebook.record.finding import Finding, FindingKind
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_result, is_system, is_user, thawed
from minutebook.record.pairing import Pairing
from minutebook.record.transcript import Broken
from minutebook.store.codec import Packed, is_plain, pack
from minutebook.store.types import Conversation, ConversationStatus, StoredFold, require_name
from minutebook.wire.chat import provider_message_to_entry

MOST_LABELS: Final = 16
LONGEST_LABEL: Final = 1024
LARGEST_PAGE: Final = 1000


def now() -> datetime:
    """The time, in UTC: what a store uses unless it is given another clock."""
    return datetime.now(UTC)


def require_labels(labels: Mapping[str, Any]) -> None:
    """Labels are short and few: they are read with every header.

    Raises:
        InvalidSetting: these are not.
    """
    for name, value in labels.items():
        require_name("label", name)
        if value is not None and not (isinstance(value, str) and len(value) <= LONGEST_LABEL and is_plain(value)):
            raise InvalidSetting(f"label {name!r}", value, f"text of up to {LONGEST_LABEL} characters")


def labelled(conversation: Conversation, labels: Mapping[str, str | None]) -> Conversation:
    """The header with some labels set, and those that are None removed."""
    changed = {name: value for name, value in {**conversation.labels, **labels}.items() if value is not None}
    if len(changed) > MOST_LABELS:
        raise InvalidSetting("labels", sorted(changed), f"at most {MOST_LABELS} of them")
    return replace(conversation, labels=changed)


def require_limit(limit: int) -> int:
    if not 1 <= limit <= LARGEST_PAGE:
        raise InvalidSetting("limit", limit, f"1 to {LARGEST_PAGE}")
    return limit


def require_part(last_turns: int | None, last_messages: int | None, since: int | None, limit: int | None) -> None:
    """Which part of a conversation is asked for, if it is one.

    Raises:
        InvalidSetting: it is more than one, or negative.
    """
    given = {"last_turns": last_turns, "last_messages": last_messages, "since": since}
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        raise InvalidSetting("load", sorted(named), "at most one of last_turns, last_messages and since")
    if limit is not None and since is None:
        raise InvalidSetting("limit", limit, "a since as well: where to begin")
    for name, value in {**named, "limit": limit}.items():
        if value is not None and value < 0:
            raise InvalidSetting(name, value, "0 or more")


def require_status(status: ConversationStatus | str) -> ConversationStatus:
    """A status, also by its name.

    Raises:
        InvalidSetting: there is none of that name.
    """
    try:
        return ConversationStatus(status)
    except ValueError:
        raise InvalidSetting("status", status, f"one of {', '.join(ConversationStatus)}") from None


def created(
    tenant: str, conversation: str, recipient: str | None, labels: Mapping[str, str], at: datetime
) -> Conversation:
    """The header of a conversation that nothing was appended to yet."""
    made = Conversation(tenant, conversation, recipient or conversation, at, at, at)
    return labelled(made, labels) if labels else made


def require_version(conversation: Conversation | None, name: str, expected: int | None) -> None:
    """Raises `VersionConflict` unless the conversation is where the caller thinks it is."""
    actual = 0 if conversation is None else conversation.version
    if expected is not None and expected != actual:
        raise VersionConflict(name, actual, expected)


def require_recipient(conversation: Conversation, recipient: str | None) -> None:
    if recipient is not None and recipient != conversation.recipient:
        raise InvalidSetting("recipient", recipient, f"{conversation.recipient!r}, whose conversation this is")


def grown(conversation: Conversation, messages: Sequence[Message], *, broken: Broken, at: datetime) -> Conversation:
    """The header after these messages were appended.

    Raises:
        BrokenConversation: one of them does not fit the ones before it, and `broken` is "raise".
    """
    if broken not in {"raise", "mark"}:
        raise InvalidSetting("broken", broken, "'raise' or 'mark'")
    turns, lead = conversation.turns, conversation.lead
    if conversation.open_at is None and all(map(_only_says, messages)):  # nothing that could not fit: most appends
        for position, message in enumerate(messages, conversation.length):
            turns += message["role"] == "user"
            lead += position == lead and message["role"] == "system"
        return _longer(conversation, len(messages), turns, lead, (), None, at)
    pairing = _pairing(conversation)
    found: list[Finding] = []
    for position, message in enumerate(messages, conversation.length):
        found += pairing.problems(position, message)
        pairing.take(position, message)
        turns += is_user(message)
        lead += position == lead and is_system(message)
    if found and broken == "raise" and (serious := [one for one in found if one.kind is not FindingKind.REUSED_ID]):
        raise BrokenConversation(serious)
    waiting = tuple(call_id for call_id, count in pairing.open.items() for _ in range(count))
    return _longer(conversation, len(messages), turns, lead, waiting, pairing.start if waiting else None, at)


def _only_says(message: Message) -> bool:
    """Whether it neither calls nor answers a call."""
    return len(message) == 2 and "content" in message and message.get("role") in _SPEAKERS


_SPEAKERS: Final = frozenset({"system", "user", "assistant"})


def _longer(
    one: Conversation,
    count: int,
    turns: int,
    lead: int,
    waiting: tuple[str, ...],
    start: int | None,
    at: datetime,
) -> Conversation:
    return Conversation(  # written out: replace() takes several times as long, and this is done for every append
        *(one.tenant, one.id, one.recipient, one.created_at, at, one.status_updated_at, one.status, one.version + 1),
        *(one.length + count, turns, lead, one.first, waiting, start, one.labels, one.origin),
    )


def standing(folds: Iterable[Fold]) -> list[Fold]:
    """The folds that no later one covers, by their place; `folds` are those not undone, in the order added."""
    found: list[Fold] = []
    for fold in folds:
        found = [other for other in found if not _covers(fold, other)]
        found.append(fold)
    return sorted(found, key=lambda fold: fold.start)


def require_fold(
    conversation: Conversation,
    fold: Fold,
    *,
    near: Sequence[Fold],
    splits: bool,
    replacing: Iterable[str] | None,
) -> list[Fold]:
    """The standing folds that this one would take the place of.

    `near` are the standing folds that touch its range, `splits` says whether one of its ends is within an exchange.

    Raises:
        FoldConflict: it cannot stand there.
    """
    require_name("fold id", fold.id)

    def refuse(problem: str) -> FoldConflict:
        return FoldConflict(conversation.id, fold.id, problem)

    if not 0 <= fold.start < fold.stop <= conversation.length:
        raise refuse(f"covers {fold.start}..{fold.stop}, which is no range within 0..{conversation.length}")
    if splits:
        raise refuse(f"covers {fold.start}..{fold.stop}, which splits an exchange")
    if conversation.open_at is not None and fold.stop > conversation.open_at:
        raise refuse(f"covers the calls at {conversation.open_at}, which wait for their results")
    for other in near:
        if not _covers(fold, other):
            raise refuse(f"covers fold {other.id!r} ({other.start}..{other.stop}) only in part")
    covered = [other.id for other in near]
    if replacing is not None and set(replacing) != set(covered):
        raise refuse(f"was made while other folds stood in its range than now: {', '.join(covered) or 'none'}")
    return list(near)


def touching(folds: Iterable[Fold], start: int, stop: int) -> list[Fold]:
    """The folds that have something in a range."""
    return [fold for fold in folds if fold.start < stop and start < fold.stop]


def gaps(folds: Iterable[Fold], start: int, stop: int) -> list[range]:
    """What standing folds, given by their place, leave uncovered of a range."""
    found: list[range] = []
    for fold in touching(folds, start, stop):
        found.append(range(start, fold.start))
        start = fold.stop
    found.append(range(start, stop))
    return [gap for gap in found if gap]


def merged(parts: Iterable[range]) -> list[range]:
    """The same positions in order, none twice."""
    found: list[range] = []
    for part in sorted((part for part in parts if part), key=lambda part: part.start):
        if found and part.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, part.stop))
        else:
            found.append(part)
    return found


def same_fold(conversation: str, known: StoredFold, fold: Fold) -> StoredFold:
    """The fold that is there already under that id.

    Raises:
        FoldConflict: it is another fold, or was undone.
    """
    if (known.fold.start, known.fold.stop, known.fold.reason) != (fold.start, fold.stop, fold.reason) or list(
        known.fold.shown
    ) != list(fold.shown):
        raise FoldConflict(conversation, fold.id, "has the id of another fold")
    if known.undone_at is not None:
        raise FoldConflict(conversation, fold.id, "was undone; a fold that returns is a new one, with a new id")
    return known


def require_purge(conversation: Conversation, before: int, folds: Sequence[Fold]) -> list[Fold]:
    """The standing folds that show everything before a position.

    Raises:
        FoldConflict: they do not show all of it, or one reaches beyond.
    """
    if 0 <= before <= conversation.first:
        return []
    covering = touching(folds, 0, before)
    reached = conversation.first
    for fold in covering:
        if fold.start <= reached:
            reached = max(reached, fold.stop)
    if not 0 <= before <= conversation.length or reached != max(before, conversation.first):
        raise FoldConflict(conversation.id, "", f"purging before {before} needs folds that cover all up to there")
    return covering


def require_position(conversation: Conversation, position: int) -> int:
    """A position whose entry is there.

    Raises:
        InvalidSetting: it is not.
    """
    if not conversation.first <= position < conversation.length:
        raise InvalidSetting(
            "position", position, f"one from {conversation.first} up to {conversation.length}, not included"
        )
    return position


def require_cut(conversation: Conversation, at: int | None, *, splits: bool) -> int:
    """The place where a fork leaves, if one may.

    Raises:
        InvalidSetting: it is not within what is left of the record, or within an exchange.
    """
    if at is None:
        return conversation.length
    if not conversation.first <= at <= conversation.length:
        raise InvalidSetting("at", at, f"a position from {conversation.first} to {conversation.length}")
    if splits:
        raise InvalidSetting("at", at, "a position between two exchanges")
    return at


def require_target(conversation: str | None, recipient: str | None) -> None:
    """Raises `InvalidSetting` unless an erasure names one thing to erase."""
    if (conversation is None) == (recipient is None):
        raise InvalidSetting("erase", (conversation, recipient), "either a conversation or a recipient")
    require_name("conversation", conversation) if conversation is not None else require_name(
        "recipient", recipient or ""
    )


@lru_cache(maxsize=1_024)  # asked for by every part of a transaction
def tombstone(tenant: str, conversation: str) -> bytes:
    """What is left of an erased conversation's id: enough to know it again, not enough to read it."""
    return sha256(f"{len(tenant)}:{tenant}{conversation}".encode()).digest()[:16]


def _covers(fold: Fold, other: Fold) -> bool:
    return fold.start <= other.start and other.stop <= fold.stop


def _pairing(conversation: Conversation) -> Pairing:
    """Calls and results as they stand at the end of the record."""
    pairing = Pairing()
    if conversation.open_at is not None:
        pairing.start = conversation.open_at
        for call_id in conversation.open_calls:
            pairing.open[call_id] = pairing.open.get(call_id, 0) + 1
    return pairing


SEALED: Final = "sealed"
"""The key under which a message of an encrypted store has all that it says. Its wrapper has checked what is in it."""


def trimmed(entry: ConversationEntry, message: Message, position: int) -> tuple[Packed, Message] | None:
    """An entry with its message replaced by a smaller one; None if it is the same.

    Raises:
        InvalidSetting: more than tool payloads would change, or the new one is larger.
        InvalidMessage: it is no message.
    """
    made = provider_message_to_entry(
        message,
        evaluation_id=entry.evaluation_id,
        sequence=entry.sequence,
        created_at=entry.created_at,
        provider=entry.provider,
        model=entry.model,
    )
    (before, old), (after, new) = pack(entry, position), pack(made, position)
    if (before.text, before.rest) == (after.text, after.rest):
        return None
    if _is_sealed(old) and _is_sealed(new):
        old, new = {**old, SEALED: ""}, {**new, SEALED: ""}
    elif _size(after) > _size(before):
        raise InvalidSetting(
            f"changes[{position}]",
            f"{_size(after)} bytes",
            f"a message of {_size(before)} bytes at most, as it has now",
        )
    if _without_payloads(old) != _without_payloads(new):
        raise InvalidSetting(
            f"changes[{position}]",
            message.get("role"),
            "the message as it is, but for a result's content or the arguments of calls",
        )
    return after, new


def _without_payloads(message: Message) -> dict[str, Any]:
    """What must stay of a message, in its order."""
    kept: dict[str, Any] = thawed(message)
    if is_result(message):
        kept["content"] = None
    made = [call.get(name) for call in kept.get("tool_calls") or () for name in ("function", "custom")]
    for one in (*made, kept.get("function_call")):
        if isinstance(one, dict):
            one.update({key: None for key in ("arguments", "input") if key in one})
    return kept


def _is_sealed(message: Mapping[str, Any]) -> bool:
    return message.get("content") == "" and isinstance(message.get(SEALED), str)


def _size(packed: Packed) -> int:
    return len(packed.text or b"") + len(packed.rest or b"")
