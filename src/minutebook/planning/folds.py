"""The messages that are left out of the view when a step is not shown in full.

The first and the newest request stay, and so does the last exchange at the time of the fold, which the model is about to
answer. Messages of up to `keep_tokens` tokens before the last exchange also stay, because the next calls mostly depend on
the most recent messages. At the next change of the plan, which changes the prompt anyway, the folds are extended over these messages.
Between two such changes every view only grows at its end, which keeps the provider's prompt cache valid, and expanding a step
that was just folded restores the previous view.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from minutebook.planning.task_history import StepFold, StepHistory, TaskHistory, Turn
from minutebook.record.message import Message, call_ids, is_result, result_id, role_of
from minutebook.tokens import counter_for


def with_folds(histories: Sequence[TaskHistory]) -> tuple[TaskHistory, ...]:
    """The histories, with the folds of the newest one computed from the visibility of all steps."""
    *earlier, latest = histories
    folds: list[StepFold] = []
    for position, step_id, turn in sorted(_folded_turns(histories), key=lambda folded: folded[0]):
        if folds and folds[-1].stop == position and folds[-1].step_id == step_id:
            folds[-1] = replace(folds[-1], stop=position + 1)
        else:
            folds.append(StepFold(step_id, position, position + 1, fingerprint(turn.message())))
    return (*earlier, latest if latest.folds == tuple(folds) else replace(latest, folds=tuple(folds)))


def with_moved_fold_ends(histories: Sequence[TaskHistory]) -> tuple[TaskHistory, ...]:
    """The histories after a change of the plan: the folds now include messages that were kept when they were created."""
    requests = histories[-1].extent.requests
    keep_tokens = {step.keep_tokens for history in histories for step in history.steps if step.level != "full"}
    fold_ends = {tokens: fold_end_of(histories, tokens) for tokens in keep_tokens}

    def change(step: StepHistory) -> StepHistory:
        if step.level == "full":
            return step
        return replace(step, fold_end=fold_ends[step.keep_tokens], kept_positions=requests)

    return with_folds([replace(history, steps=tuple(map(change, history.steps))) for history in histories])


def fold_end_of(histories: Sequence[TaskHistory], keep_tokens: int) -> int:
    """The position before which a summary that is written now replaces messages.

    The last exchange stays, and before it whole exchanges of at most `keep_tokens` tokens.
    """
    fold_end = histories[-1].extent.fold_limit
    if not keep_tokens:
        return fold_end
    turns = (turn for history in histories for step in history.steps for turn in step.turns)
    turns_by_position = {
        turn.position: turn for turn in turns if turn.position is not None and turn.position < fold_end
    }
    counter, remaining_tokens = counter_for(None), keep_tokens
    for position in sorted(turns_by_position, reverse=True):
        remaining_tokens -= counter.count(turns_by_position[position].text)
        if remaining_tokens < 0:
            break
        if turns_by_position[position].role != "tool":  # an exchange starts here, and stays complete
            fold_end = position
    return fold_end


def fingerprint(message: Message) -> str:
    """The role of a message and the id of the call that it makes or answers; see `StepFold.fingerprint`."""
    if is_result(message):
        return f"tool {result_id(message)}".strip()
    calls = call_ids(message)
    return f"{role_of(message)} {calls[0] if calls else ''}".strip()


def last_summarized_turn(history: TaskHistory, step: StepHistory) -> int:
    """The id of the last turn that a summary of this step or of a parent step replaces; 0 if there is no such summary."""
    return max(
        (
            ancestor.summarized_through
            for ancestor in history.step_and_parents(step.step_id)
            if ancestor.level != "full"
        ),
        default=0,
    )


def _folded_turns(histories: Sequence[TaskHistory]) -> Iterator[tuple[int, int, Turn]]:
    """The position, the step id and the turn of every message to leave out."""
    for history in histories:
        for step in history.steps:
            folded_steps = [ancestor for ancestor in history.step_and_parents(step.step_id) if ancestor.level != "full"]
            for turn in step.turns if folded_steps else ():
                position = turn.position
                if position is not None and any(_replaces(folded_step, turn, position) for folded_step in folded_steps):
                    yield position, step.step_id, turn


def _replaces(step: StepHistory, turn: Turn, position: int) -> bool:
    """Whether the summary of a folded step replaces the message of this turn."""
    is_summarized = (turn.turn_id or 0) <= step.summarized_through
    return is_summarized and position < step.fold_end and position not in step.kept_positions
