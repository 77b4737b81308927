"""The plan of a session and its history as JSON data, which a stored conversation keeps next to its messages."""

from collections.abc import Mapping
from typing import Any, Final

from minutebook.history.protocol import SessionProtocol
from minutebook.planning.setup import PLAN_SLICES, install_history, install_plan
from minutebook.planning.task_history import TaskHistory
from minutebook.session.snapshot import TypeRegistry
from minutebook.session.state import Session

_TYPES: Final = TypeRegistry(*PLAN_SLICES)


class PlanChanges:
    """Tells whether the plan and the history of a session have changed since they were stored."""

    def __init__(self) -> None:
        self._stored_values: list[Any] = []
        """The values that were stored last."""

    def data(self, session: SessionProtocol) -> dict[str, Any] | None:
        """The plan and its history as JSON data; None if they have not changed since the last `note_stored`."""
        if not isinstance(session, Session) or self._values(session) == self._stored_values:
            return None
        return {
            slice_type.__name__: _TYPES.to_data(slice_type, session.query(slice_type).slice())
            for slice_type in PLAN_SLICES
        }

    def note_stored(self, session: SessionProtocol) -> None:
        """Take the session's current plan and history as stored."""
        if isinstance(session, Session):
            self._stored_values = self._values(session)

    @staticmethod
    def _values(session: Session) -> list[Any]:
        values: list[Any] = []
        for slice_type in PLAN_SLICES:
            values.extend(session.query(slice_type).slice())
        return values


def restore_plan(session: SessionProtocol, data: Mapping[str, Any]) -> None:
    """Load a plan and its history into a session, unless it has a plan or a history already.

    Raises:
        UnreadableInput: the data is not that of a plan.
    """
    if not isinstance(session, Session) or any(session.query(slice_type).slice() for slice_type in PLAN_SLICES):
        return
    slices: dict[type, tuple[Any, ...]] = {
        slice_type: _TYPES.from_data(slice_type, data.get(slice_type.__name__)) for slice_type in PLAN_SLICES
    }
    install_plan(session)
    for slice_type, values in slices.items():
        session.mutate(slice_type).seed(values)
    if slices[TaskHistory]:
        install_history(session)
