"""Every call of a whole conversation with the results that answer it, wherever those stand."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from minutebook.record.finding import Finding, FindingKind
from minutebook.record.message import NO_ID, RESULT_ROLES, Message, call_ids, result_id, role_of
from minutebook.record.pairing import Pairing


@dataclass(slots=True)
class Survey:
    """What belongs together in a conversation, and what is wrong with it whoever the provider is."""

    results: dict[int, list[int]] = field(default_factory=dict)
    """Assistant message → the results that answer its calls, as they arrived."""
    unanswered: dict[int, list[str]] = field(default_factory=dict)
    """Assistant message → the ids of its calls that nothing answers."""
    findings: list[Finding] = field(default_factory=list)


def survey(messages: Sequence[Message], *, so_far: bool = False) -> Survey:
    """Pair every call with its result; a late result, or one that came before its call, finds its way home.

    With `so_far` the conversation is still going on and is read as it arrived: a result before its call is an orphan.
    """
    pairing, seen = Pairing(), Survey()
    orphans: list[Finding] = []
    for index, message in enumerate(messages):
        if role_of(message) in RESULT_ROLES:
            home = pairing.home(message)
            if home is not None:
                seen.results[home].append(index)
                seen.unanswered[home].remove(result_id(message))
        elif ids := _asked(message):
            seen.results[index] = []
            seen.unanswered[index] = ids
        for finding in pairing.problems(index, message):
            if finding.kind is FindingKind.ORPHAN_RESULT:
                orphans.append(finding)
            elif finding.kind is not FindingKind.DANGLING_CALL:
                seen.findings.append(finding)
        pairing.take(index, message)
    if so_far:
        seen.findings += orphans
    else:
        _bring_home(messages, orphans, seen)
    seen.findings += [
        Finding(FindingKind.DANGLING_CALL, index, call_id or None)
        for index, ids in seen.unanswered.items()
        for call_id in ids
    ]
    seen.findings.sort(key=lambda finding: finding.index)
    return seen


def _asked(message: Message) -> list[str]:
    return call_ids(message) if role_of(message) == "assistant" else []


def _bring_home(messages: Sequence[Message], orphans: list[Finding], seen: Survey) -> None:
    """A result that stands before its call is out of place, not an orphan."""
    waiting: dict[str, list[int]] = {}
    for index, ids in seen.unanswered.items():
        for call_id in ids:
            waiting.setdefault(call_id, []).append(index)
    for orphan in orphans:
        call_id = result_id(messages[orphan.index])
        homes = [home for home in waiting.get(call_id, ()) if home > orphan.index] if call_id != NO_ID else []
        if homes:
            waiting[call_id].remove(homes[0])
            seen.unanswered[homes[0]].remove(call_id)
            insort(seen.results[homes[0]], orphan.index)
            seen.findings.append(Finding(FindingKind.INTERLEAVED, orphan.index, call_id))
        else:
            seen.findings.append(orphan)
