"""The checks and header updates that all backends share.

They are pure functions, so that every backend decides alike. A backend reads the header under its lock, calls them, and
writes the result.

Trimming is the only change of a stored entry, apart from purging and erasing. Tool arguments and results are the largest part
of a long conversation, and the first that is no longer needed. So the content of a result and the arguments of a call may be
replaced by shorter ones. Roles, texts and the pairing of calls and results cannot change.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, TypeAlias
from uuid import uuid4

from minutebook.errors import (
    BrokenConversation,
    FoldConflict,
    InvalidSetting,
    MissingSetting,
    VersionConflict,
    require_type,
)
from minutebook.record.entry import ConversationEntry
from minutebook.record.finding import Finding, FindingKind
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_result, is_system, is_user, plain_copy
from minutebook.record.pairing import Pairing
from minutebook.record.transcript import OnBroken
from minutebook.store.codec import Packed, is_storable, pack
from minutebook.store.types import ConversationHeader, ConversationStatus, StoredFold, require_name
from minutebook.wire.chat import provider_message_to_entry

EndOfSystem: TypeAlias = Callable[[int], Awaitable[int]]
"""The position of the first entry from a position on that is no system message; the end of the record if there is none."""
MAX_LABELS: Final = 16
MAX_LABEL_CHARACTERS: Final = 1024
MAX_PAGE_ITEMS: Final = 1000


def now() -> datetime:
    """The current time in UTC: the default clock of a store."""
    return datetime.now(UTC)


def require_labels(labels: Mapping[str, Any]) -> None:
    """Check the names and values of labels. They must be short, because they are read with every header.

    Raises:
        InvalidSetting: a name or value is not a string, is too long, or cannot be stored.
    """
    for name, value in labels.items():
        require_name("label", name)
        if value is not None and not (
            isinstance(value, str) and len(value) <= MAX_LABEL_CHARACTERS and is_storable(value)
        ):
            expected = f"a string of at most {MAX_LABEL_CHARACTERS} characters, without NUL or lone surrogates"
            raise InvalidSetting(f"label {name!r}", value, expected)


def with_labels(conversation: ConversationHeader, labels: Mapping[str, str | None]) -> ConversationHeader:
    """The header with these labels set. A label whose value is None is removed."""
    merged_labels = {name: value for name, value in {**conversation.labels, **labels}.items() if value is not None}
    if len(merged_labels) > MAX_LABELS:
        raise InvalidSetting("labels", sorted(merged_labels), f"at most {MAX_LABELS} labels")
    return replace(conversation, labels=merged_labels)


def require_limit(limit: int) -> int:
    require_type("limit", limit, int, f"1 to {MAX_PAGE_ITEMS}")
    if not 1 <= limit <= MAX_PAGE_ITEMS:
        raise InvalidSetting("limit", limit, f"1 to {MAX_PAGE_ITEMS}")
    return limit


def require_part(last_turns: int | None, last_messages: int | None, since: int | None, limit: int | None) -> None:
    """Check the arguments of `load` that select a part of a conversation.

    Raises:
        InvalidSetting: one is negative, or they exclude each other.
        MissingSetting: `limit` has no `since`.
    """
    selectors = {"last_turns": last_turns, "last_messages": last_messages, "since": since}
    used_selectors = {name: value for name, value in selectors.items() if value is not None}
    if len(used_selectors) > 1:
        raise InvalidSetting(
            "arguments of load", sorted(used_selectors), "at most one of last_turns, last_messages and since"
        )
    if limit is not None and since is None:
        raise MissingSetting("since", "limit= needs it: pass since=0 to load from the start")
    for name, value in {**used_selectors, "limit": limit}.items():
        if value is not None:
            require_type(name, value, int, "0 or more")
            if value < 0:
                raise InvalidSetting(name, value, "0 or more")


def require_status(status: ConversationStatus | str) -> ConversationStatus:
    """The status with this name.

    Raises:
        InvalidSetting: no status has this name.
    """
    try:
        return ConversationStatus(status)
    except ValueError:
        raise InvalidSetting("status", status, f"one of {', '.join(ConversationStatus)}") from None


def new_header(
    tenant: str, conversation: str, recipient: str | None, labels: Mapping[str, str], at: datetime
) -> ConversationHeader:
    """The header of a new, empty conversation."""
    header = ConversationHeader(tenant, conversation, recipient or conversation, at, at, at)
    return with_labels(header, labels) if labels else header


def require_version(header: ConversationHeader | None, conversation: str, expected: int | None) -> None:
    """Raise `VersionConflict` unless the conversation has the expected version; 0 means that it does not exist."""
    actual = 0 if header is None else header.version
    if expected is not None and expected != actual:
        raise VersionConflict(conversation, actual, expected)


def require_recipient(conversation: ConversationHeader, recipient: str | None) -> None:
    if recipient is not None and recipient != conversation.recipient:
        raise InvalidSetting(
            "recipient", recipient, f"{conversation.recipient!r}, the recipient of conversation {conversation.id!r}"
        )


def header_after_append(
    conversation: ConversationHeader, messages: Sequence[Message], *, broken: OnBroken, at: datetime
) -> ConversationHeader:
    """The header after an append of these messages.

    Raises:
        BrokenConversation: a message does not fit the ones before it, and `broken` is "raise".
    """
    if broken not in {"raise", "mark"}:
        raise InvalidSetting("broken", broken, "'raise' or 'mark'")
    turns, lead = conversation.turns, conversation.lead
    if conversation.open_at is None and all(map(_is_plain_text, messages)):  # the fast path, for most appends
        for position, message in enumerate(messages, conversation.length):
            turns += message["role"] == "user"
            lead += position == lead and message["role"] == "system"
        return _with_counts(conversation, len(messages), turns, lead, (), None, at)
    pairing = _pairing(conversation)
    findings: list[Finding] = []
    for position, message in enumerate(messages, conversation.length):
        findings += pairing.problems(position, message)
        pairing.add(position, message)
        turns += is_user(message)
        lead += position == lead and is_system(message)
    if findings and broken == "raise":
        rejected_findings = [finding for finding in findings if finding.kind is not FindingKind.REUSED_ID]
        if rejected_findings:
            raise BrokenConversation(
                rejected_findings, "Append the missing message first, or rewind or clear the conversation"
            )
    open_calls = tuple(call_id for call_id, count in pairing.open.items() for _ in range(count))
    open_at = pairing.start if open_calls else None
    return _with_counts(conversation, len(messages), turns, lead, open_calls, open_at, at)


def _is_plain_text(message: Message) -> bool:
    """Whether it has only a role and a content, and is not a tool result: it can follow any exchange without open calls."""
    return len(message) == 2 and "content" in message and message.get("role") in _TEXT_ROLES


_TEXT_ROLES: Final = frozenset({"system", "user", "assistant"})


def _with_counts(
    header: ConversationHeader,
    new_entries: int,
    turns: int,
    lead: int,
    open_calls: tuple[str, ...],
    open_at: int | None,
    at: datetime,
) -> ConversationHeader:
    return ConversationHeader(  # not replace(), which takes several times as long: this runs for every append
        *(header.tenant, header.id, header.recipient, header.created_at, at, header.status_updated_at, header.status),
        *(header.version + 1, header.length + new_entries, turns, lead, header.first),
        *(open_calls, open_at, header.labels, header.origin),
        revision=header.revision,
        requests=header.requests,
    )


def visible_folds(folds: Iterable[Fold]) -> list[Fold]:
    """The folds that no later one covers, by start. `folds` are those not undone, in the order added."""
    visible: list[Fold] = []
    for fold in folds:
        visible = [earlier for earlier in visible if not _covers(fold, earlier)]
        visible.append(fold)
    return sorted(visible, key=lambda fold: fold.start)


def require_fold(
    conversation: ConversationHeader,
    fold: Fold,
    *,
    overlapping: Sequence[Fold],
    splits_an_exchange: bool,
    replacing: Iterable[str] | None,
) -> list[Fold]:
    """Check that a fold can be added; return the active folds that it replaces.

    `overlapping` are the active folds that overlap its range.

    Raises:
        FoldConflict: it cannot be added.
    """
    require_name("fold id", fold.id)

    def conflict(problem: str) -> FoldConflict:
        return FoldConflict(conversation.id, fold.id, problem)

    if not 0 <= fold.start < fold.stop <= conversation.length:
        raise conflict(f"covers {fold.start}..{fold.stop}, which is not a range within 0..{conversation.length}")
    if splits_an_exchange:
        raise conflict(f"covers {fold.start}..{fold.stop}, which splits an exchange")
    hides_end = (
        fold.is_rewind and fold.stop == conversation.length
    )  # as `rewind`, which hides calls without results too
    if conversation.open_at is not None and fold.stop > conversation.open_at and not hides_end:
        raise conflict(f"covers the tool calls of message {conversation.open_at}, which have no results yet")
    for other in overlapping:
        if not _covers(fold, other):
            raise conflict(f"covers fold {other.id!r} ({other.start}..{other.stop}) only partly")
    covered_ids = [other.id for other in overlapping]
    replacing = None if replacing is None else sorted(replacing)
    if replacing is not None and set(replacing) != set(covered_ids):
        active, expected = (", ".join(map(repr, ids)) or "none" for ids in (covered_ids, replacing))
        raise conflict(f"the active folds in its range are {active}, but it was made to replace {expected}")
    return list(overlapping)


def folds_in_range(folds: Iterable[Fold], start: int, stop: int) -> list[Fold]:
    """The folds that overlap a range of positions."""
    return [fold for fold in folds if fold.start < stop and start < fold.stop]


def unfolded_ranges(folds: Iterable[Fold], start: int, stop: int) -> list[range]:
    """The parts of a range that no fold covers. The folds do not overlap and are sorted by start."""
    uncovered: list[range] = []
    for fold in folds_in_range(folds, start, stop):
        uncovered.append(range(start, fold.start))
        start = fold.stop
    uncovered.append(range(start, stop))
    return [part for part in uncovered if part]


def merged_ranges(parts: Iterable[range]) -> list[range]:
    """The union of ranges, as sorted ranges that do not overlap."""
    union: list[range] = []
    for part in sorted((part for part in parts if part), key=lambda part: part.start):
        if union and part.start <= union[-1].stop:
            union[-1] = range(union[-1].start, max(union[-1].stop, part.stop))
        else:
            union.append(part)
    return union


def require_same_fold(conversation: str, stored: StoredFold, fold: Fold) -> StoredFold:
    """The stored fold with the id of a fold that is added again.

    Raises:
        FoldConflict: the stored fold is a different one, or was undone.
    """
    existing = stored.fold
    is_same_range = (existing.start, existing.stop, existing.reason) == (fold.start, fold.stop, fold.reason)
    if not is_same_range or list(existing.shown) != list(fold.shown):
        raise FoldConflict(conversation, fold.id, "the id belongs to a different fold", "use another id")
    if stored.undone_at is not None:
        raise FoldConflict(conversation, fold.id, "it was undone", "add it with a new id")
    return stored


def require_purge(conversation: ConversationHeader, before: int, folds: Sequence[Fold]) -> list[Fold]:
    """The active folds that cover all entries before a position.

    Raises:
        FoldConflict: they do not cover all of them, or one ends after the position.
    """
    if 0 <= before <= conversation.first:
        return []
    covering = folds_in_range(folds, 0, before)
    covered_until = conversation.first
    for fold in covering:
        if fold.start <= covered_until:
            covered_until = max(covered_until, fold.stop)
    if not 0 <= before <= conversation.length or covered_until != max(before, conversation.first):
        problem = f"cannot purge before position {before}: active folds must cover all entries before it and end there"
        raise FoldConflict(conversation.id, "", problem, "compact these entries first")
    return covering


def require_position(conversation: ConversationHeader, position: int) -> int:
    """Check that there is an entry at a position, and return the position.

    Raises:
        InvalidSetting: there is none.
    """
    if not conversation.first <= position < conversation.length:
        if conversation.first == conversation.length:
            expected = "an existing entry, but the conversation has none"
        else:
            expected = f"{conversation.first} to {conversation.length - 1}"
        raise InvalidSetting("position", position, expected)
    return position


def require_fork_position(conversation: ConversationHeader, at: int | None, *, splits_an_exchange: bool) -> int:
    """The number of entries that a fork at this position shares; None means all.

    Raises:
        InvalidSetting: the position is purged, beyond the end, or within an exchange.
    """
    if at is None:
        return conversation.length
    if not conversation.first <= at <= conversation.length:
        raise InvalidSetting("at", at, f"{conversation.first} to {conversation.length}")
    if splits_an_exchange:
        raise InvalidSetting("at", at, "a position between two exchanges")
    return at


SEALED: Final = "entries that it covers were purged, or a tool call that it hides has no result"


def require_rewind(
    header: ConversationHeader, to: int, expected_version: int | None, *, splits_an_exchange: bool
) -> None:
    """Check that a conversation can be rewound to a position.

    Raises:
        VersionConflict: the conversation has another version than expected.
        InvalidSetting: the position is purged, beyond the end, or within an exchange.
    """
    require_version(header, header.id, expected_version)
    if to != 0 and not header.first <= to <= header.length:
        stored = f"{header.first} to {header.length}"
        raise InvalidSetting("to", to, f"0, or {stored}" if header.first else stored)
    if splits_an_exchange:
        raise InvalidSetting("to", to, "a position between two exchanges")


def fold_to_undo(active: Iterable[Fold], length: int, first: int) -> Fold | None:
    """The fold to undo if a conversation shall show only its entries before `length`; None if there is none.

    It has entries on both sides, or it leaves out the newest of the entries, without which the conversation cannot
    continue. The entries before `first` are purged, so they stay hidden.
    """
    stop = length
    for fold in sorted(active, key=lambda fold: fold.start, reverse=True):
        if fold.start < length < fold.stop:
            return fold
        if fold.stop == stop and fold.is_rewind:
            stop = fold.start
        elif fold.stop == stop > first and not fold.shown:
            return fold
    return None


def folds_of_fork(folds: Iterable[StoredFold], length: int, first: int) -> list[StoredFold]:
    """The folds that a fork gets, which has the entries before `length`. The entries before `first` are purged."""
    shared = [stored for stored in folds if stored.undone_at is None and stored.fold.stop <= length]
    while fold := fold_to_undo(visible_folds(stored.fold for stored in shared), length, first):
        shared = [stored for stored in shared if stored.fold is not fold]
    return shared


async def header_with_rewinds(
    header: ConversationHeader, folds: Iterable[StoredFold], end_of_system: EndOfSystem
) -> ConversationHeader:
    """The header after the rewinds among the folds have changed. Open calls at the end may be hidden now."""
    rewinds = _standing_rewinds(folds)
    is_end_hidden = any(fold.stop == header.length for fold in rewinds)
    return replace(
        header,
        version=header.version + 1,
        lead=await _find_lead(header, rewinds, end_of_system),
        open_calls=() if is_end_hidden else header.open_calls,
        open_at=None if is_end_hidden else header.open_at,
    )


async def find_lead(header: ConversationHeader, folds: Iterable[StoredFold], end_of_system: EndOfSystem) -> int:
    """The position after the leading system messages. System messages that follow a rewind to these belong to them."""
    return await _find_lead(header, _standing_rewinds(folds), end_of_system)


def _standing_rewinds(folds: Iterable[StoredFold]) -> list[Fold]:
    """The rewinds that are not undone, by start. A later fold may cover them."""
    rewinds = (stored.fold for stored in folds if stored.undone_at is None and stored.fold.is_rewind)
    return sorted(rewinds, key=lambda fold: fold.start)


async def _find_lead(header: ConversationHeader, rewinds: Iterable[Fold], end_of_system: EndOfSystem) -> int:
    lead = await end_of_system(header.first)
    if lead == header.first:  # what was purged is not known
        lead = min(header.lead, header.first)
    for fold in rewinds:
        if fold.start <= lead < fold.stop:
            lead = await end_of_system(fold.stop)
    return lead


def rewind_fold(header: ConversationHeader, to: int, reason: str) -> Fold:
    """The fold that hides all entries from a position on."""
    return Fold(f"{reason}-{uuid4().hex}", to, header.length, (), reason)


def new_fold(header: ConversationHeader, fold: Fold, at: datetime) -> StoredFold:
    """A fold that is added. A rewind cannot be undone if a call that it hides has no result."""
    return StoredFold(fold, at, sealed=header.open_at is not None and fold.stop > header.open_at)


def require_target(conversation: str | None, recipient: str | None) -> None:
    """Check the arguments of `erase`: exactly one of the two must be given."""
    if conversation is not None and recipient is not None:
        raise InvalidSetting("recipient", recipient, "no recipient if conversation= is given: erase one or the other")
    if conversation is not None:
        require_name("conversation", conversation)
    elif recipient is not None:
        require_name("recipient", recipient)
    else:
        raise MissingSetting("what to erase", "pass conversation= or recipient=")


@lru_cache(maxsize=1_024)  # several statements of a transaction need it
def id_hash(tenant: str, conversation: str) -> bytes:
    """A hash of tenant and id. It identifies leases, and after an erasure it recognizes the id without revealing it."""
    return sha256(f"{len(tenant)}:{tenant}{conversation}".encode()).digest()[:16]


@lru_cache(maxsize=1_024)
def recipient_hash(tenant: str, recipient: str) -> bytes:
    """A hash of tenant and recipient. It recognizes a blocked recipient without revealing the name."""
    return sha256(f"recipient {len(tenant)}:{tenant}{recipient}".encode()).digest()[:16]


def _covers(fold: Fold, other: Fold) -> bool:
    return fold.start <= other.start and other.stop <= fold.stop


def _pairing(conversation: ConversationHeader) -> Pairing:
    """The pairing of calls and results at the end of the record."""
    pairing = Pairing()
    if conversation.open_at is not None:
        pairing.start = conversation.open_at
        for call_id in conversation.open_calls:
            pairing.open[call_id] = pairing.open.get(call_id, 0) + 1
    return pairing


CIPHERTEXT: Final = "sealed"
"""The field with the ciphertext of an encrypted message. The encryption layer has checked the content."""


def trimmed_entry(entry: ConversationEntry, message: Message, position: int) -> tuple[Packed, Message] | None:
    """An entry with its message replaced by a smaller one; None if the message is the same.

    Raises:
        InvalidSetting: something other than tool arguments or results would change, or the new message is larger.
        InvalidMessage: it is not a valid message.
    """
    new_entry = provider_message_to_entry(
        message,
        evaluation_id=entry.evaluation_id,
        sequence=entry.sequence,
        created_at=entry.created_at,
        provider=entry.provider,
        model=entry.model,
    )
    old_packed, old_message = pack(entry, position)
    new_packed, new_message = pack(new_entry, position)
    if (old_packed.text, old_packed.rest) == (new_packed.text, new_packed.rest):
        return None
    if _is_encrypted(old_message) and _is_encrypted(new_message):
        old_message, new_message = {**old_message, CIPHERTEXT: ""}, {**new_message, CIPHERTEXT: ""}
    elif _size(new_packed) > _size(old_packed):
        expected = f"at most {_size(old_packed)} bytes, the size of the stored message"
        raise InvalidSetting(f"changes[{position}]", f"{_size(new_packed)} bytes", expected)
    if _without_payloads(old_message) != _without_payloads(new_message):
        expected = "the stored message, changed only in the content of a tool result or the arguments of tool calls"
        raise InvalidSetting(f"changes[{position}]", message, expected)
    return new_packed, new_message


def _without_payloads(message: Message) -> dict[str, Any]:
    """A message without the content of a tool result and the arguments of tool calls."""
    copy: dict[str, Any] = plain_copy(message)
    if is_result(message):
        copy["content"] = None
    functions = [call.get(name) for call in copy.get("tool_calls") or () for name in ("function", "custom")]
    for function in (*functions, copy.get("function_call")):
        if isinstance(function, dict):
            function.update({key: None for key in ("arguments", "input") if key in function})
    return copy


def _is_encrypted(message: Mapping[str, Any]) -> bool:
    return message.get("content") == "" and isinstance(message.get(CIPHERTEXT), str)


def _size(packed: Packed) -> int:
    return len(packed.text or b"") + len(packed.rest or b"")
