"""Which messages leave the conversation when a step is shown as less than all of it.

What was being said when a step was folded, and the first and the newest request, stay: the model is about to answer them.
So does as much before that as `keep_tokens` says, for what comes next is mostly about what was just said. It all leaves
when the plan changes the next time, which changes the prompt anyway. So between two such moments every view is the last
one with something appended, and opening a step that was just folded gives back the view that was.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from minutebook.planning.task_history import StepFold, StepHistory, TaskHistory, Turn
from minutebook.record.message import Message, call_ids, is_result, result_id, role_of
from minutebook.tokens import counter_for


def refolded(histories: Sequence[TaskHistory]) -> tuple[TaskHistory, ...]:
    """The histories, where the newest one's folds are as the visibility of all steps has it."""
    *before, latest = histories
    positioned = sorted(_folded_turns(histories), key=lambda found: found[1].position or 0)
    folds: list[StepFold] = []
    for step_id, turn in positioned:
        at = turn.position or 0
        if folds and folds[-1].stop == at and folds[-1].step_id == step_id:
            folds[-1] = replace(folds[-1], stop=at + 1)
        else:
            folds.append(StepFold(step_id, at, at + 1, mark(turn.message())))
    return (*before, latest if latest.folds == tuple(folds) else replace(latest, folds=tuple(folds)))


def swept(histories: Sequence[TaskHistory]) -> tuple[TaskHistory, ...]:
    """The histories after a change of the plan: what folded steps had left in the conversation leaves it now."""
    reach = histories[-1].reach
    folded = [step for history in histories for step in history.steps if step.level != "full"]
    cuts = {tokens: cut_of(histories, tokens) for tokens in {step.keep_tokens for step in folded}}
    moved = [
        replace(
            history,
            steps=tuple(
                step if step.level == "full" else replace(step, cut=cuts[step.keep_tokens], spared=reach.requests)
                for step in history.steps
            ),
        )
        for history in histories
    ]
    return refolded(moved)


def cut_of(histories: Sequence[TaskHistory], keep_tokens: int) -> int:
    """Where a summary made now ends to stand for messages: so many tokens, in whole exchanges, stay before what is said."""
    cut = histories[-1].reach.cut
    if not keep_tokens:
        return cut
    turns = (turn for history in histories for step in history.steps for turn in step.turns)
    before = {turn.position: turn for turn in turns if turn.position is not None and turn.position < cut}
    counter, left = counter_for(None), keep_tokens
    for at in sorted(before, reverse=True):
        left -= counter.count(before[at].told)
        if left < 0:
            break
        if before[at].role != "tool":  # with it an exchange begins, which stays whole
            cut = at
    return cut


def mark(message: Message) -> str:
    """By what a fold knows the first message it hides: who says it, and the call it makes or answers."""
    calls = call_ids(message)
    call = result_id(message) if is_result(message) else calls[0] if calls else ""
    return f"{'tool' if is_result(message) else role_of(message)} {call}".strip()


def bound(history: TaskHistory, step: StepHistory) -> int:
    """The last turn that something shorter stands for, of this step or of one it is a part of."""
    return max((one.summarized_through for one in history.chain(step.step_id) if one.level != "full"), default=0)


def _folded_turns(histories: Sequence[TaskHistory]) -> Iterator[tuple[int, Turn]]:
    for history in histories:
        for step in history.steps:
            over = [one for one in history.chain(step.step_id) if one.level != "full"]
            for turn in step.turns if over else ():
                if turn.position is not None and any(_covers(one, turn, turn.position) for one in over):
                    yield step.step_id, turn


def _covers(step: StepHistory, turn: Turn, at: int) -> bool:
    return (turn.turn_id or 0) <= step.summarized_through and at < step.cut and at not in step.spared
