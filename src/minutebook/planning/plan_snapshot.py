"""The plan of a session and its history as JSON data, which a stored conversation keeps next to its messages."""

from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from minutebook.history.protocol import SessionProtocol
from minutebook.planning.plan import Plan
from minutebook.planning.setup import PLAN_SLICES, install_history, install_plan
from minutebook.planning.task_history import TaskHistory
from minutebook.session.snapshot import TypeRegistry
from minutebook.session.state import Session

_TYPES: Final = TypeRegistry(*PLAN_SLICES)


_PLANS_OF_SESSIONS: Final[WeakKeyDictionary[Session, set[str]]] = WeakKeyDictionary()
"""Session → the ids of the plans that it has had. A session without a plan that it has had was rolled back."""


class PlanChanges:
    """Detects whether the plan and the history of a session have changed since they were stored under an id."""

    def __init__(self, plan_id: str) -> None:
        self._plan_id = plan_id
        self._stored_values: list[Any] | None = []
        """The values that were stored last; None if it is not known what is stored."""

    def restore(self, session: SessionProtocol, data: Mapping[str, Any]) -> None:
        """Load the stored plan into the session, unless the session has a plan or was rolled back to before this one."""
        is_known = isinstance(session, Session) and self._plan_id in _PLANS_OF_SESSIONS.get(session.outermost, ())
        if not is_known and restore_plan(session, data):
            self.note_stored(session)
        else:
            self._stored_values = None

    def data(self, session: SessionProtocol) -> dict[str, Any] | None:
        """The plan and its history as JSON data; None if they have not changed since the last `note_stored`."""
        if not isinstance(session, Session) or self._values(session) == self._stored_values:
            return None
        return {
            slice_type.__name__: _TYPES.to_data(slice_type, session.query(slice_type).slice())
            for slice_type in PLAN_SLICES
        }

    def note_stored(self, session: SessionProtocol) -> None:
        """Remember that the session's current plan and history are stored."""
        if isinstance(session, Session):
            self._stored_values = self._values(session)
            if self._stored_values:
                _PLANS_OF_SESSIONS.setdefault(session.outermost, set()).add(self._plan_id)

    @staticmethod
    def _values(session: Session) -> list[Any]:
        values: list[Any] = []
        for slice_type in PLAN_SLICES:
            values.extend(session.query(slice_type).slice())
        return values


def restore_plan(session: SessionProtocol, data: Mapping[str, Any]) -> bool:
    """Load a plan and its history into a session. Return False if it has a plan or a history already.

    Raises:
        UnreadableInput: the data is not that of a plan.
    """
    if not isinstance(session, Session) or any(session.query(slice_type).slice() for slice_type in PLAN_SLICES):
        return False
    plans, histories = plans_of(data)
    install_plan(session)
    session.mutate(Plan).seed(plans)
    session.mutate(TaskHistory).seed(histories)
    if histories:
        install_history(session)
    return True


def plans_of(data: Mapping[str, Any]) -> tuple[tuple[Plan, ...], tuple[TaskHistory, ...]]:
    """The plans and the histories in the JSON data, the newest last.

    Raises:
        UnreadableInput: the data is not that of a plan.
    """
    plans: tuple[Plan, ...] = _TYPES.from_data(Plan, data.get(Plan.__name__))
    histories: tuple[TaskHistory, ...] = _TYPES.from_data(TaskHistory, data.get(TaskHistory.__name__))
    return plans, histories
