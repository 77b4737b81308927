"""A long project of a coding agent that works by a plan, made from a seed and nothing else.

Every step but the last is work in one area of a made-up project: searching, reading, mending and testing, with calls side
by side, as in `coding_session`. The last one writes up what came of all the others. Around the work stand the calls by
which a model keeps a plan: it sets one up, begins each step, and at its end says in a few sentences what came of it, in
the words that it had reported to the user.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from minutebook.errors import InvalidSetting
from minutebook.record.message import call_ids, is_user, text_of
from minutebook.testing.simulator.session import CodingSession

Call: TypeAlias = tuple[str, dict[str, Any], str]
"""The tool, its arguments, and what it answers."""

_OBJECTIVE: Final = "Mend what is reported in each area, with tests, and write the release notes"
_REQUEST: Final = "Please go through the reported problems area by area, and write release notes at the end."
_LONGEST: Final = 1000
"""Characters of a summary, the most that `summarize_step` takes."""


def planned_project(
    seed: int = 0, *, steps: int = 12, messages: int = 600, aligned: bool = True
) -> list[dict[str, Any]]:
    """The messages of a project of so many steps and about so many messages, in the chat-completions shape.

    The same seed gives the same bytes. Without `aligned` the steps are cut from one stretch of work wherever their length
    has it, and nothing is written up: a plan that says nothing about the work.

    Raises:
        InvalidSetting: there are not two steps, or not twenty messages for each.
    """
    if steps < 2:
        raise InvalidSetting("steps", steps, "2 or more")
    if messages < 20 * steps:
        raise InvalidSetting("messages", messages, f"{20 * steps} or more for {steps} steps")
    return list(_Planned(seed, aligned=aligned).messages(steps, messages))


class _Planned:
    """A coding session with a plan around it."""

    def __init__(self, seed: int, *, aligned: bool) -> None:
        self._session = CodingSession(seed)
        self._aligned = aligned
        self._count = self._said = 0
        self._reports: list[str] = []

    def messages(self, steps: int, most: int) -> Iterator[dict[str, Any]]:
        yield from self._session.taken()
        yield {"role": "user", "content": _REQUEST}
        areas = [*self._areas(steps - 1)]
        titles = [f"Mend {area}" for area in areas] + ["Write the release notes"]
        yield from self._made(
            ("planning_setup_plan", {"objective": _OBJECTIVE, "steps": titles}, "There is a new plan.")
        )
        yield from self._made(_updated(1, "in_progress"))
        for number in range(1, steps + 1):
            is_last = number == steps
            until = most * number // steps
            work = list(self._notes(areas) if is_last and self._aligned else self._work(areas, number, until))
            self._said += len(work) + 4
            yield from work
            self._reports.append(_reported(work))
            summary = (
                "summarize_step",
                {"step_id": number, "summary": self._reports[-1]},
                f"Step {number} summarized.",
            )
            after = [] if is_last else [_updated(number + 1, "in_progress")]
            yield from self._made(_updated(number, "done"), summary, *after)
        yield {"role": "assistant", "content": "All steps of the plan are done."}

    def _areas(self, count: int) -> Iterator[str]:
        yield self._session.area
        for _ in range(count - 1):
            yield self._session.project.next_area()

    def _work(self, areas: list[str], number: int, until: int) -> Iterator[dict[str, Any]]:
        """The turns of one step, at least one, in its own area if the plan says anything about the work."""
        session, left = self._session, max(1, until - self._said)
        if self._aligned:
            session.area = areas[number - 1]
            session.module = session.project.modules[session.area][0]
        while left > 0:
            session.turn()
            said = session.taken()
            left -= len(said)
            yield from said

    def _notes(self, areas: list[str]) -> Iterator[dict[str, Any]]:
        """The release notes, a paragraph for each area, in the words of its step."""
        for area, report in zip(areas, self._reports, strict=True):
            text = f"## {area}\n\n{report}\n"
            written = ("edit_file", {"path": "CHANGELOG.md", "edits": [{"old_text": "", "new_text": text}]}, "1 edit")
            listed = ("shell", {"command": f"git log --oneline -3 -- src/{area}"}, "nothing new")
            yield from self._made(written, listed)
        yield {"role": "assistant", "content": "The release notes are in `CHANGELOG.md`, a paragraph for each area."}

    def _made(self, *calls: Call) -> Iterator[dict[str, Any]]:
        """One message with these calls, and a result for each."""
        ids = [f"plan_{self._count + place}" for place in range(len(calls))]
        self._count += len(calls)
        asked = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for call_id, (name, arguments, _) in zip(ids, calls, strict=True)
        ]
        yield {"role": "assistant", "content": None, "tool_calls": asked}
        for call_id, (_, _, result) in zip(ids, calls, strict=True):
            yield {"role": "tool", "tool_call_id": call_id, "content": result}


def _updated(step_id: int, status: str) -> Call:
    return "planning_update_step", {"step_id": step_id, "status": status}, f"Step {step_id} is {status}."


def _reported(said: list[dict[str, Any]]) -> str:
    """What the agent told the user at the end of each turn, as much of each as there is room for."""
    ends = [place for place in range(len(said)) if place + 1 == len(said) or is_user(said[place + 1])]
    reports = [text_of(said[place]) for place in ends if not call_ids(said[place])]
    share = _LONGEST // max(1, len(reports)) - 1
    return "\n".join(report[:share] for report in reports) or "Nothing came of it."
