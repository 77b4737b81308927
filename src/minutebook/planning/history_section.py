"""The prompt section with the task history: each step shown by its visibility, and the tools to change that.

The section shows what is left out of the messages, and nothing that is in them.
"""

import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias, get_args
from weakref import WeakKeyDictionary

from minutebook.errors import InvalidSetting
from minutebook.history.compose import managers_in
from minutebook.history.protocol import HistoryManager, SessionProtocol
from minutebook.planning.budget import StepHistoryManager
from minutebook.planning.events import EXPAND_STEP, SUMMARIZE_STEP
from minutebook.planning.folds import last_summarized_turn
from minutebook.planning.plan import Plan
from minutebook.planning.setup import install_history, install_plan
from minutebook.planning.summaries import MAX_LEDGER_TOKENS, StepLedger
from minutebook.planning.task_history import (
    UNASSIGNED,
    StepFold,
    StepHistory,
    StepVisibility,
    StepVisibilityResolver,
    TaskHistory,
    Turn,
    default_keep_tokens,
    excerpt,
    expand_hint,
    key_turns,
)
from minutebook.planning.tools import HistoryTools, session_of
from minutebook.prompt.section import Section
from minutebook.prompt.tools import RenderContext
from minutebook.prompt.visibility import SectionPath, SectionVisibility
from minutebook.session.state import Session
from minutebook.tokens.models import ModelInfo

_CONDENSED_CHARACTERS = 500
"""The maximum length of a turn of a condensed step."""


class HistoryText:
    """The text of a session's histories at one moment."""

    def __init__(self, histories: Sequence[TaskHistory], resolver: StepVisibilityResolver) -> None:
        self._histories = histories
        self._resolver = resolver
        self._folds = histories[-1].folds if histories else ()

    def steps(self, history: TaskHistory) -> Iterator[tuple[StepHistory, str]]:
        """The steps with their text.

        A step that is not active and has no text is left out if a parent is folded, or if it is the one for turns outside
        any step.
        """
        for step in history.in_order():
            text = "\n\n".join(self._parts(history, step))
            is_active = step.step_id == history.active_step_id
            has_full_parents = all(self._level(parent) == "full" for parent in _parents(history, step))
            if text or is_active or (step.step_id != UNASSIGNED and has_full_parents):
                yield step, text

    def summarized_turns(self) -> list[Turn]:
        """The turns that a summary replaces and that are in no message of the view."""
        return [
            turn
            for history in self._histories
            for step in history.steps
            if (last_id := last_summarized_turn(history, step))
            for turn in self._without_message(step.turns)
            if _turn_id(turn) <= last_id
        ]

    def _parts(self, history: TaskHistory, step: StepHistory) -> Iterator[str]:
        """The texts of a step's turns that are in no message. Turns that the summary of a folded parent covers are left out."""
        level = self._level(step)
        folded_parents = [parent for parent in _parents(history, step) if parent.level != "full"]
        replaced_through = max((parent.summarized_through for parent in folded_parents), default=0)
        summarized_through = 0 if step.level == "full" else step.summarized_through
        turns = [turn for turn in step.turns if _turn_id(turn) > replaced_through]
        summarized_turns = [turn for turn in turns if _turn_id(turn) <= summarized_through]
        later_turns = (
            [turn for turn in turns if turn.position is None and _turn_id(turn) > summarized_through]
            if step.detached
            else []
        )
        if level == "full":
            yield from map(_turn_text, self._without_message(turns) if summarized_through else later_turns)
        elif summarized_turns or (summarized_through and not folded_parents):
            yield from self._replacement(step, level, summarized_turns)
            yield from map(_turn_text, later_turns)
        elif later_turns and not folded_parents:  # no summary covers these turns; only the resolver folds the step
            yield from self._replacement(step, level, later_turns)
        else:
            yield from map(_turn_text, later_turns)

    def _replacement(self, step: StepHistory, level: StepVisibility, turns: Sequence[Turn]) -> Iterator[str]:
        """The text that is shown instead of these turns, and how the model can read them."""
        if level == "summary" and step.summary:
            yield step.summary
        elif level == "condensed":
            texts = map(_turn_text, key_turns(self._without_message(turns)))
            yield from (excerpt(text, _CONDENSED_CHARACTERS) for text in texts)
        yield f"_{expand_hint(step.step_id)}_"

    def _without_message(self, turns: Sequence[Turn]) -> list[Turn]:
        return [turn for turn in turns if turn.position is None or _is_folded(self._folds, turn.position)]

    def _level(self, step: StepHistory) -> StepVisibility:
        """How the section shows the step: like `StepHistory.level`, but the resolver may override it."""
        level = self._resolver.resolve(step.step_id, step.visibility if step.summary is not None else None)
        return "full" if level == "summary" and not step.summary else level


def _parents(history: TaskHistory, step: StepHistory) -> Iterator[StepHistory]:
    return (parent for parent in history.step_and_parents(step.step_id) if parent is not step)


def _turn_text(turn: Turn) -> str:
    speaker = f"[{turn.tool_name or 'tool'}]" if turn.role == "tool" else turn.role.title()
    return f"**{speaker}**: {turn.text}"


def _is_folded(folds: Sequence[StepFold], position: int) -> bool:
    """Whether one of the folds, which are in order, contains the position."""
    index = bisect_right(folds, position, key=lambda fold: fold.start) - 1
    return index >= 0 and position < folds[index].stop


def _turn_id(turn: Turn) -> int:
    return turn.turn_id or 0


ExpandMode: TypeAlias = Literal["result", "view"]
FoldMode: TypeAlias = Literal["now", "when_full"]

_GUIDE: Final = (
    f"A step stays in the conversation until you replace it with a summary by calling `{SUMMARIZE_STEP}`. Do so when you no "
    f"longer need the details of a step. Nothing is lost: `{EXPAND_STEP}` shows all of it again."
)
_EMPTY: Final = "<no history recorded>"


class TaskHistorySection(Section[None]):
    """Renders conversation history organized by plan steps.

    The section shows what is not in the messages: steps that were summarized, and turns of earlier conversations. A
    `StepHistoryManager` leaves the summarized messages out of the view, so that nothing is sent twice. With `model`, the
    model has a tool that reports how full its context is.

    `expand` selects how a step is shown again: in the tool's result, which does not change the prompt or its cache, or in
    the view at its old position, for which the tool raises `VisibilityExpansionRequired`. `fold` selects when a summary
    replaces its step: now, or when a `StepBudget` finds the window full.

    When a step is summarized, the last `keep_tokens` of the conversation stay until the next change of the plan, because
    the next calls mostly depend on them. The section also lists paths, ids, URLs and commands of the summarized turns, up
    to `max_ledger_tokens`.

    Raises:
        InvalidSetting: `expand` or `fold` is unknown, or a number is negative.
    """

    reads_session = True

    def __init__(
        self,
        *,
        session: Session | None = None,
        title: str = "Task History",
        key: str = "task-history",
        model: ModelInfo | None = None,
        expand: ExpandMode = "result",
        fold: FoldMode = "now",
        keep_tokens: int | None = None,
        max_ledger_tokens: int = MAX_LEDGER_TOKENS,
        resolver: StepVisibilityResolver | None = None,
        accepts_overrides: bool = False,
    ) -> None:
        if expand not in get_args(ExpandMode):
            raise InvalidSetting("expand", expand, "'result' or 'view'")
        if fold not in get_args(FoldMode):
            raise InvalidSetting("fold", fold, "'now' or 'when_full'")
        if keep_tokens is not None and keep_tokens < 0:
            raise InvalidSetting("keep_tokens", keep_tokens, "0 or more, or None for the default")
        if max_ledger_tokens < 0:
            raise InvalidSetting("max_ledger_tokens", max_ledger_tokens, "0 or more")
        self._session, self._max_ledger_tokens = session, max_ledger_tokens
        self._expand_in_view = expand == "view"
        self._has_warned = False
        self._ledgers: WeakKeyDictionary[Session, StepLedger] = WeakKeyDictionary()
        self._resolver = resolver or StepVisibilityResolver()
        if session is not None:
            _install_plan_and_history(session)
        tools = HistoryTools(
            key,
            session,
            model,
            expand_in_view=self._expand_in_view,
            fold_now=fold == "now",
            keep_tokens=default_keep_tokens(model) if keep_tokens is None else keep_tokens,
        )
        super().__init__(
            title=title,
            key=key,
            tools=tools.tools(),
            accepts_overrides=accepts_overrides,
            visibility=SectionVisibility.FULL,
        )

    def check_run(self, session: SessionProtocol, manager: HistoryManager) -> None:
        """Warn once if the run has no `StepHistoryManager`, or if its session is not that of the section."""
        problem = None
        outermost = session.outermost if isinstance(session, Session) else session
        if self._session is not None and self._session.outermost is not outermost:
            problem = "was created with another session than the run's; pass the same session to both, or no session to the section"
        elif not any(isinstance(part, StepHistoryManager) for part in managers_in(manager)):
            problem = (
                "folds finished steps, but the run has no StepHistoryManager, so their messages are sent all the same; "
                "pass history_manager=StepHistoryManager(), or compose it with your manager; a stored conversation takes "
                "it as manager="
            )
        if problem is not None and not self._has_warned:
            self._has_warned = True
            warnings.warn(f"TaskHistorySection {self.key!r} {problem}", RuntimeWarning, stacklevel=2)

    def body(self, params: None, depth: int, number: str, *, path: SectionPath, context: RenderContext) -> str:  # noqa: ARG002
        histories = self._histories(context)
        resolver = self._resolver_with_overrides(path, context, histories)
        if not histories:
            return f"{_GUIDE}\n\n{_EMPTY}"
        history_text = HistoryText(histories, resolver)
        parts = [_GUIDE]
        for history in histories[:-1]:
            lines = [
                f"Step {step.step_id}, {step.step_title}: {text}" for step, text in history_text.steps(history) if text
            ]
            parts += [f"**Earlier task**: {history.objective}", *lines] if lines else []
        latest = histories[-1]
        if latest.objective:
            parts.append(f"**Objective**: {latest.objective}")
        step_texts = []
        for index, (step, text) in enumerate(history_text.steps(latest), 1):
            marker = " [active]" if step.step_id == latest.active_step_id else ""
            heading = f"{'#' * min(depth + 3, 6)} {number.rstrip('.')}.{index}. {step.step_title}{marker}"
            step_texts.append(f"{heading}\n\n{text}".strip())
        if ledger := self._ledger(context, history_text.summarized_turns(), "\n\n".join([*parts, *step_texts])):
            parts.append(ledger)  # before the steps: after them it would seem to belong to the last one
        parts += step_texts
        return "\n\n".join(parts if len(parts) > 1 else [*parts, _EMPTY])

    def _ledger(self, context: RenderContext, turns: Sequence[Turn], section_text: str) -> str:
        session = session_of(context, self._session)
        if session is None or not self._max_ledger_tokens:
            return ""
        plan = session.query(Plan).latest()
        open_titles = [] if plan is None else [step.title for step in plan.steps if step.status != "done"]
        ledger = self._ledgers.setdefault(session, StepLedger(self._max_ledger_tokens))
        return ledger.text(turns, section_text=section_text, open_titles=open_titles)

    def outline(self, params: None, *, path: SectionPath, context: RenderContext) -> str:  # noqa: ARG002
        """One line per step, with its id and title."""
        histories = self._histories(context)
        latest = histories[-1] if histories else TaskHistory("")
        lines = [
            f"- {step.step_id}. {step.step_title}{' [active]' if step.step_id == latest.active_step_id else ''}"
            for step in latest.in_order()
            if step.step_id
        ]
        return "\n".join(lines) or _EMPTY

    def _histories(self, context: RenderContext) -> tuple[TaskHistory, ...]:
        session = session_of(context, self._session)
        if session is None:
            return ()
        _install_plan_and_history(session)
        return session.query(TaskHistory).all()

    def _resolver_with_overrides(
        self, path: SectionPath, context: RenderContext, histories: Sequence[TaskHistory]
    ) -> StepVisibilityResolver:
        """The resolver with the call's overrides of single steps, as in `(…, "task-history", "step-3")`.

        With `expand="view"`, overrides to full are ignored: they come from the expand tool, which also stores the expansion in
        the session. A later summary of the step ends it there.

        Raises:
            InvalidSetting: there is no such step.
        """
        overrides: dict[int, StepVisibility] = {}
        existing_ids = {step.step_id for history in histories for step in history.steps}
        if existing_ids and (unknown := sorted(self._resolver.step_ids - existing_ids)):
            problem = (
                f"has a resolver with overrides for unknown steps: {unknown}; the history has {sorted(existing_ids)}"
            )
            warnings.warn(f"TaskHistorySection {self.key!r} {problem}", RuntimeWarning, stacklevel=2)
        step_ids = {f"step-{step.step_id}": step.step_id for history in histories for step in history.steps}
        for keys, visibility in context.visibility_overrides.items():
            if len(keys) <= len(path) or keys[: len(path)] != path:
                continue
            step_id = step_ids.get(".".join(keys[len(path) :]))
            if step_id is None:
                expected = f"a step of the section {'.'.join(path)}: {', '.join(step_ids) or 'there are none yet'}"
                raise InvalidSetting("a path in visibility_overrides", keys, expected)
            if visibility is SectionVisibility.SUMMARY:
                overrides[step_id] = "summary"
            elif not self._expand_in_view:
                overrides[step_id] = "full"
        return self._resolver.with_overrides(overrides) if overrides else self._resolver


def _install_plan_and_history(session: Session) -> None:
    install_plan(session)
    install_history(session)
