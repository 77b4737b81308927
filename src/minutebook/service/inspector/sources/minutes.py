"""The requests of a stored conversation, from their minutes."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from minutebook.agent.messages import usage_from
from minutebook.history.curation import NoteStatus
from minutebook.record.message import Message, is_result, result_id, role_of
from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.service.inspector.requests import NOT_SENT, FateRun, ReportedUsage, SentPart, ViewBase


def add_recorded_requests(conversation: InspectedConversation, requests: Sequence[Mapping[str, Any]]) -> None:
    """Append all requests of a conversation that was loaded, the oldest first."""
    conversation.record.extend(conversation.messages)
    for body in requests:
        add_recorded_request(conversation, body)
    policy = requests[-1].get("policy") or {}
    conversation.policy = str(policy.get("name") or "")
    budget = policy.get("max_tokens")
    conversation.budget = budget if isinstance(budget, int) else None
    conversation.finished.set()


def add_recorded_request(conversation: InspectedConversation, body: Mapping[str, Any]) -> None:
    """Append the request of stored minutes. The record must have its messages already."""
    base = _base_of(conversation, body)
    usage = usage_from(body["usage"]) if body.get("usage") else None
    reported = None
    if usage is not None and usage.input_tokens:
        reported = ReportedUsage(usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.output_tokens)
    problem = body.get("failed") or body.get("bypass")
    last = conversation.requests[-1].base if conversation.requests else None
    if last is not None and _continues(last, base):
        base, length = last, base.length
    else:
        length = base.length
    conversation.series.add(
        length,
        base,
        folds=frozenset(body.get("folds") or ()),
        reported=reported,
        at=datetime.fromisoformat(body["asked_at"]),
        model=body.get("model") or None,
        problem=None if problem is None else str(problem),
        overflows=body.get("overflows") or 0,
    )


def _base_of(conversation: InspectedConversation, body: Mapping[str, Any]) -> ViewBase:
    messages, record = conversation.messages, conversation.record
    runs = tuple(
        FateRun(item["start"], item["stop"], NoteStatus(item["status"]), item["reason"]) for item in body["left_out"]
    )
    stored = body["parts"]
    stops = [part[1] for part in stored if isinstance(part, (list, tuple))]
    length = min(len(messages), max([*stops, *(run.stop for run in runs)], default=0))
    parts = list(_parts(stored, runs, messages))
    counted = [
        part if part.message is None else part._replace(tokens=record.counter.message(part.message)) for part in parts
    ]
    sums = conversation.series.token_sums
    tokens = sum(part.tokens if part.message is not None else sums[part.stop] - sums[part.start] for part in counted)
    return ViewBase(length, tuple(counted), runs, tokens)


def _parts(stored: Sequence[Any], runs: Sequence[FateRun], messages: Sequence[Message]) -> Iterator[SentPart]:
    """The parts of stored minutes. A message in another form gets the position of the message that it is made from.

    Minutes do not store that position. It is that of the next changed message before the following range, if both have
    the same role and, if they are tool results, the same call.
    """
    changed = [position for run in runs if run.status not in NOT_SENT for position in range(run.start, run.stop)]
    next_changed, end = 0, 0
    for index, part in enumerate(stored):
        if isinstance(part, (list, tuple)):
            start, stop = part[0], min(part[1], len(messages))
            if start < stop:
                yield SentPart(start, stop)
            end = stop
            continue
        following = next((other[0] for other in stored[index + 1 :] if isinstance(other, (list, tuple))), len(messages))
        while next_changed < len(changed) and changed[next_changed] < end:
            next_changed += 1
        position = changed[next_changed] if next_changed < len(changed) else None
        if position is not None and position < following and _is_form_of(part, messages[position]):
            yield SentPart(position, position + 1, part)
            next_changed, end = next_changed + 1, position + 1
        else:
            yield SentPart(end, end, part)


def _is_form_of(sent: Message, message: Message) -> bool:
    if role_of(sent) != role_of(message):
        return False
    return not is_result(sent) or result_id(sent) == result_id(message)


def _continues(last: ViewBase, base: ViewBase) -> bool:
    """Whether a base is the last one with new messages appended, so that both requests can share it."""
    if base.runs != last.runs or base.length < last.length:
        return False
    return _merged_parts(last.parts_at(base.length)) == _merged_parts(base.parts)


def _merged_parts(parts: Sequence[SentPart] | Iterator[SentPart]) -> list[SentPart]:
    result: list[SentPart] = []
    for part in parts:
        if result and part.message is None and result[-1].message is None and result[-1].stop == part.start:
            result[-1] = result[-1]._replace(stop=part.stop)
        else:
            result.append(part)
    return result
