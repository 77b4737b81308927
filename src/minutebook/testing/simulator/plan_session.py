"""A generated session of a coding agent that follows a plan. The seed determines every byte.

Each step but the last is work in one area of a generated project, as in `coding_session`: search, read, fix and test, with
parallel calls. The last step writes release notes about the others. The model also calls the planning tools: it sets up
the plan, starts each step, and summarizes it at the end from its reports to the user.
"""

from collections.abc import Iterator
from typing import Any, Final

from minutebook.errors import InvalidSetting
from minutebook.record.message import call_ids, is_user, text_of
from minutebook.testing.simulator.session import CodingSession, call_messages
from minutebook.testing.simulator.tools import Call
from minutebook.testing.simulator.words import PLAN_OBJECTIVE, PLAN_REQUEST, PLAN_STEP

_MAX_SUMMARY_CHARACTERS: Final = 1000
"""Maximum characters of a summary in `summarize_step`."""


def planned_project(
    seed: int = 0, *, steps: int = 12, messages: int = 600, aligned: bool = True
) -> list[dict[str, Any]]:
    """A session with this many steps and about this many messages, as chat-completions messages.

    The same seed gives the same bytes. Without `aligned`, the plan is unrelated to the work: steps end after a number of
    messages whatever the agent does, and there are no release notes.

    Raises:
        InvalidSetting: fewer than 2 steps, or fewer than 20 messages per step.
    """
    if steps < 2:
        raise InvalidSetting("steps", steps, "2 or more")
    if messages < 20 * steps:
        raise InvalidSetting("messages", messages, f"{20 * steps} or more for {steps} steps")
    return list(_PlannedSession(seed, aligned=aligned).messages(steps, messages))


class _PlannedSession:
    """A coding session with calls of the planning tools."""

    def __init__(self, seed: int, *, aligned: bool) -> None:
        self._session = CodingSession(seed)
        self._aligned = aligned
        self._call_count = self._message_count = 0
        self._reports: list[str] = []

    def messages(self, steps: int, target_messages: int) -> Iterator[dict[str, Any]]:
        yield from self._session.take_messages()
        yield {"role": "user", "content": PLAN_REQUEST}
        areas = [*self._areas(steps - 1)]
        titles = [PLAN_STEP.format(area=area) for area in areas] + ["Write the release notes"]
        yield from self._call_messages(
            Call("planning_setup_plan", {"objective": PLAN_OBJECTIVE, "steps": titles}, "There is a new plan.")
        )
        yield from self._call_messages(_update_step_call(1, "in_progress"))
        for number in range(1, steps + 1):
            is_last = number == steps
            message_target = target_messages * number // steps
            work = list(
                self._release_notes(areas) if is_last and self._aligned else self._work(areas, number, message_target)
            )
            self._message_count += len(work) + 4
            yield from work
            self._reports.append(_final_reports(work))
            summary = {"step_id": number, "summary": self._reports[-1]}
            calls = [
                _update_step_call(number, "done"),
                Call("summarize_step", summary, f"Step {number} summarized."),
            ]
            if not is_last:
                calls.append(_update_step_call(number + 1, "in_progress"))
            yield from self._call_messages(*calls)
        yield {"role": "assistant", "content": "All steps of the plan are done."}

    def _areas(self, count: int) -> Iterator[str]:
        yield self._session.area
        for _ in range(count - 1):
            yield self._session.project.next_area()

    def _work(self, areas: list[str], number: int, message_target: int) -> Iterator[dict[str, Any]]:
        """The turns of one step, at least one, until the session has `message_target` messages.

        With `aligned`, the work is in the step's area.
        """
        session, remaining_messages = self._session, max(1, message_target - self._message_count)
        if self._aligned:
            session.area = areas[number - 1]
            session.module = session.project.modules[session.area][0]
        while remaining_messages > 0:
            session.add_turn()
            turn = session.take_messages()
            remaining_messages -= len(turn)
            yield from turn

    def _release_notes(self, areas: list[str]) -> Iterator[dict[str, Any]]:
        """Write the release notes, one paragraph per area, from the report of its step."""
        for area, report in zip(areas, self._reports, strict=True):
            text = f"## {area}\n\n{report}\n"
            edit = Call("edit_file", {"path": "CHANGELOG.md", "edits": [{"old_text": "", "new_text": text}]}, "1 edit")
            log = Call("shell", {"command": f"git log --oneline -3 -- src/{area}"}, "nothing new")
            yield from self._call_messages(edit, log)
        yield {"role": "assistant", "content": "The release notes are in `CHANGELOG.md`, a paragraph for each area."}

    def _call_messages(self, *calls: Call) -> Iterator[dict[str, Any]]:
        """An assistant message with these calls, then their results."""
        ids = [f"plan_{self._call_count + index}" for index in range(len(calls))]
        self._call_count += len(calls)
        message, results = call_messages(None, calls, ids)
        yield from [message, *results]


def _update_step_call(step_id: int, status: str) -> Call:
    return Call("planning_update_step", {"step_id": step_id, "status": status}, f"Step {step_id} is {status}.")


def _final_reports(messages: list[dict[str, Any]]) -> str:
    """The agent's last message of each turn, truncated to `_MAX_SUMMARY_CHARACTERS` characters in total."""
    last_indexes = [
        index for index in range(len(messages)) if index + 1 == len(messages) or is_user(messages[index + 1])
    ]
    reports = [text_of(messages[index]) for index in last_indexes if not call_ids(messages[index])]
    share = _MAX_SUMMARY_CHARACTERS // max(1, len(reports)) - 1
    return "\n".join(report[:share] for report in reports) or "Nothing came of it."
