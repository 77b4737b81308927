"""The plan of a session and its history as JSON data, which a stored conversation keeps next to its messages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from minutebook.history.protocol import SessionProtocol
from minutebook.planning.plan import Plan
from minutebook.planning.setup import PLAN_SLICES, install_history, install_plan
from minutebook.planning.task_history import TaskHistory, Turn
from minutebook.session.snapshot import TypeRegistry
from minutebook.session.state import Session

_TYPES: Final = TypeRegistry(*PLAN_SLICES)
_CHANGED_AT: Final = "changed_at"
"""Key of the data for `PlanChanges._changed_at`. Data of earlier versions does not have it."""

_PLANS_OF_SESSIONS: Final[WeakKeyDictionary[Session, set[str]]] = WeakKeyDictionary()
"""Session → the ids of the plans that it has had. A session without a plan that it has had was rolled back."""


class PlanChanges:
    """Detects whether the plan and the history of a session have changed since they were stored under an id."""

    def __init__(self, plan_id: str) -> None:
        self._plan_id = plan_id
        self._stored_values: list[Any] | None = []
        """The values that were stored last; None if it is not known what is stored."""
        self._stored_decisions: list[Any] = []
        self._changed_at: int | None = None
        """The number of messages that the conversation had after the last change of the plan, a summary or a visibility."""

    def restore(self, session: SessionProtocol, data: Mapping[str, Any], hidden: Sequence[range] = ()) -> None:
        """Load the stored plan into the session, unless the session has a plan or was rolled back to before this one.

        `hidden` are the positions that the conversation was rewound over. A plan that was changed there is not loaded.
        """
        changed_at = data.get(_CHANGED_AT)
        is_hidden = changed_at is not None and any(indexes.start < changed_at <= indexes.stop for indexes in hidden)
        is_known = isinstance(session, Session) and self._plan_id in _PLANS_OF_SESSIONS.get(session.outermost, ())
        if not is_known and not is_hidden and restore_plan(session, data, hidden):
            self._changed_at = changed_at
            self.note_stored(session)
        else:
            self._stored_values = None

    def data(self, session: SessionProtocol, length: int) -> dict[str, Any] | None:
        """The plan and its history as JSON data; None if they have not changed since the last `note_stored`.

        `length` is the number of messages that the conversation has when they are stored.
        """
        if not isinstance(session, Session) or self._values(session) == self._stored_values:
            return None
        if self._changed_at is None or self._decisions(session) != self._stored_decisions:
            self._changed_at = length
        slices = {
            slice_type.__name__: _TYPES.to_data(slice_type, session.query(slice_type).slice())
            for slice_type in PLAN_SLICES
        }
        return {**slices, _CHANGED_AT: self._changed_at}

    def note_stored(self, session: SessionProtocol) -> None:
        """Remember that the session's current plan and history are stored."""
        if isinstance(session, Session):
            self._stored_values = self._values(session)
            self._stored_decisions = self._decisions(session)
            if self._stored_values:
                _PLANS_OF_SESSIONS.setdefault(session.outermost, set()).add(self._plan_id)

    @staticmethod
    def _values(session: Session) -> list[Any]:
        values: list[Any] = []
        for slice_type in PLAN_SLICES:
            values.extend(session.query(slice_type).slice())
        return values

    @staticmethod
    def _decisions(session: Session) -> list[Any]:
        """The plan, and what is shown of its steps: everything except the turns."""
        histories = session.query(TaskHistory).slice()
        steps = [(step.step_id, step.summary, step.visibility) for history in histories for step in history.steps]
        return [*session.query(Plan).slice(), steps]


def restore_plan(session: SessionProtocol, data: Mapping[str, Any], hidden: Sequence[range] = ()) -> bool:
    """Load a plan and its history, without the turns at hidden positions, into a session.

    Return False if it has a plan or a history already.

    Raises:
        UnreadableInput: the data is not that of a plan.
    """
    if not isinstance(session, Session) or any(session.query(slice_type).slice() for slice_type in PLAN_SLICES):
        return False
    plans, histories = plans_of(data)
    histories = tuple(_without_turns(history, hidden) for history in histories)
    install_plan(session)
    session.mutate(Plan).seed(plans)
    session.mutate(TaskHistory).seed(histories)
    if histories:
        install_history(session)
    return True


def _without_turns(history: TaskHistory, hidden: Sequence[range]) -> TaskHistory:
    """The history without the turns at hidden positions."""

    def shown(turn: Turn) -> bool:
        return not any(turn.position in indexes for indexes in hidden)

    steps = tuple(replace(step, turns=tuple(filter(shown, step.turns))) for step in history.steps)
    return replace(history, steps=steps) if hidden else history


def plans_of(data: Mapping[str, Any]) -> tuple[tuple[Plan, ...], tuple[TaskHistory, ...]]:
    """The plans and the histories in the JSON data, the newest last.

    Raises:
        UnreadableInput: the data is not that of a plan.
    """
    plans: tuple[Plan, ...] = _TYPES.from_data(Plan, data.get(Plan.__name__))
    histories: tuple[TaskHistory, ...] = _TYPES.from_data(TaskHistory, data.get(TaskHistory.__name__))
    return plans, histories
