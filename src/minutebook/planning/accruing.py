"""How turns come into the history: from the record by themselves, or from whoever has them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from minutebook.errors import InvalidSetting
from minutebook.planning.events import AppendTurn
from minutebook.planning.folding import refolded
from minutebook.planning.task import UNASSIGNED, UNASSIGNED_TITLE, OpenCall, Reach, StepHistory, TaskHistory
from minutebook.planning.turn import Turn
from minutebook.record.entry import ConversationEntry
from minutebook.record.events import ConversationRecorded
from minutebook.record.message import MessageRole
from minutebook.session.reducer import ReducerContext

Histories: TypeAlias = tuple[TaskHistory, ...]


def recorded(
    values: Sequence[TaskHistory],
    event: ConversationRecorded,
    *,
    context: ReducerContext,  # noqa: ARG001 - a reducer's shape
) -> Sequence[TaskHistory]:
    """What was said goes to the active step; a result, to the step its call was made in.

    Prompts and other system messages are no turns. A message that stands where another one stood belongs to a new
    conversation: from then on only the history has what was said there before.
    """
    entry, at = event.entry, event.position
    histories: Histories = tuple(values) or (TaskHistory(""),)
    if at is not None and at < histories[-1].reach.length:
        histories = _parted(histories, at)
    if at is not None:
        histories = _reached(histories, at, entry, is_prompt=event.is_prompt)
    if event.is_prompt or entry.role is MessageRole.SYSTEM:
        return histories if at is not None else values
    return _taken(histories, entry, at)


def appended(values: Sequence[TaskHistory], event: AppendTurn, *, context: ReducerContext) -> Sequence[TaskHistory]:
    """A turn from elsewhere; one whose number is known already is not taken twice."""
    histories: Histories = tuple(values) or (TaskHistory(""),)
    *before, latest = histories
    turn = event.turn
    if turn.turn_id is not None and any(turn.turn_id == old.turn_id for step in latest.steps for old in step.turns):
        return values
    if event.step_id is not None and latest.step(event.step_id) is None:
        raise InvalidSetting("step_id", event.step_id, "the id of a step of the history, or None for the active one")
    number = max(latest.next_turn_id, turn.turn_id or 0)
    turn = replace(turn, turn_id=turn.turn_id or number, created_at=turn.created_at or context.now)
    latest = replace(latest, next_turn_id=number + 1)
    step_id = _home(latest) if event.step_id is None else event.step_id
    return (*before, _with_turn(latest, step_id, turn))


def _taken(histories: Histories, entry: ConversationEntry, at: int | None) -> Histories:
    latest = histories[-1]
    open_call = next((call for call in latest.open_calls if call.call_id == entry.tool_call_id), None)
    number = latest.next_turn_id
    name = entry.tool_name or (open_call.tool_name if open_call else None)
    turn = Turn.of(entry, number, at, name)
    step_id = open_call.step_id if open_call else _home(latest)
    place = open_call.task if open_call else len(histories) - 1
    still_open = tuple(call for call in latest.open_calls if call is not open_call)
    if entry.role is not MessageRole.TOOL:
        calls = [OpenCall(call.id, call.name, place, step_id, number) for call in entry.tool_calls or ()]
        still_open = tuple(calls)
    histories = (*histories[:-1], replace(latest, next_turn_id=number + 1, open_calls=still_open))
    changed = _with_turn(histories[place], step_id, turn)
    if open_call is not None:
        changed = _joined(changed, open_call, number)
    return (*histories[:place], changed, *histories[place + 1 :])


def _home(latest: TaskHistory) -> int:
    """Where turns go: to the active step, if there is one."""
    active = latest.active_step_id
    return UNASSIGNED if active is None or latest.step(active) is None else active


def _with_turn(history: TaskHistory, step_id: int, turn: Turn) -> TaskHistory:
    if history.step(step_id) is None:
        history = replace(history, steps=(StepHistory(step_id, UNASSIGNED_TITLE), *history.steps))
    steps = tuple(
        replace(step, turns=(*step.turns, turn), apart=step.apart or turn.position is None)
        if step.step_id == step_id
        else step
        for step in history.steps
    )
    return replace(history, steps=steps)


def _joined(history: TaskHistory, call: OpenCall, number: int) -> TaskHistory:
    """A result goes with its call: if something stands for the call, it stands for the result too."""
    covering = {
        step.step_id
        for step in history.chain(call.step_id)
        if step.summary is not None and step.summarized_through >= call.turn_id
    }
    if not covering:
        return history
    steps = tuple(
        replace(step, summarized_through=max(step.summarized_through, number)) if step.step_id in covering else step
        for step in history.steps
    )
    return replace(history, steps=steps)


def _reached(histories: Histories, at: int, entry: ConversationEntry, *, is_prompt: bool) -> Histories:
    *before, latest = histories
    reach = replace(latest.reach, length=at + 1)
    if entry.role is MessageRole.USER:
        first = reach.first_request
        reach = replace(reach, newest_request=at, first_request=at if first is None else first)
    if entry.role is not MessageRole.TOOL and not (is_prompt and entry.role is MessageRole.SYSTEM):
        reach = replace(reach, last_start=at)
    return (*before, replace(latest, reach=reach))


def _parted(histories: Histories, at: int) -> Histories:
    """The histories when the conversation is another one from this place on."""

    def apart(turn: Turn) -> bool:
        return turn.position is not None and turn.position >= at

    kept = [
        replace(
            history,
            steps=tuple(
                replace(
                    step,
                    turns=tuple(replace(turn, position=None) if apart(turn) else turn for turn in step.turns),
                    apart=True,
                    cut=min(step.cut, at),
                )
                if any(map(apart, step.turns))
                else step
                for step in history.steps
            ),
        )
        for history in histories
    ]
    asked = [
        turn.position
        for history in kept
        for step in history.steps
        for turn in step.turns
        if turn.role == "user" and turn.position is not None
    ]
    first = histories[-1].reach.first_request
    reach = Reach(
        length=at,
        first_request=first if first is not None and first < at else None,
        newest_request=max(asked, default=None),
        last_start=None,
    )
    kept[-1] = replace(kept[-1], reach=reach, open_calls=())
    return refolded(kept)
