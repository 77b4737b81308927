"""The history in the prompt: each step by its visibility, and the tools by which the model decides about that.

The section says everything of a step that the messages do not show, and nothing that they do.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias, get_args
from weakref import WeakKeyDictionary

from minutebook.errors import InvalidSetting
from minutebook.planning.events import EXPAND_STEP, SUMMARIZE_STEP
from minutebook.planning.folds import bound
from minutebook.planning.plan import Plan
from minutebook.planning.setup import install_history, install_plan
from minutebook.planning.summaries import MAX_LEDGER, StepLedger
from minutebook.planning.task_history import (
    StepFold,
    StepHistory,
    StepVisibility,
    StepVisibilityResolver,
    TaskHistory,
    Turn,
    clipped,
    expand_hint,
    kept_of,
    key_turns,
)
from minutebook.planning.tools import HistoryTools, session_of
from minutebook.prompt.section import Section
from minutebook.prompt.tools import RenderContext
from minutebook.prompt.visibility import SectionPath, SectionVisibility
from minutebook.session.state import Session
from minutebook.tokens.models import ModelInfo

_CONDENSED = 500
"""Characters of a turn where only the most telling ones are shown."""


class Shown:
    """The histories of a session at one moment, as text."""

    def __init__(self, histories: Sequence[TaskHistory], resolver: StepVisibilityResolver) -> None:
        self._histories = histories
        self._resolver = resolver
        self._folds = histories[-1].folds if histories else ()

    def steps(self, history: TaskHistory) -> Iterator[tuple[StepHistory, str]]:
        """The steps, each with what is to be said of it; those within a folded one only where they have more to say."""
        for step in history.in_order():
            above = [one for one in history.chain(step.step_id) if one is not step]
            text = "\n\n".join(self._parts(history, step))
            is_active = step.step_id == history.active_step_id
            if text or is_active or (step.step_id and not any(self._level(one) != "full" for one in above)):
                yield step, text

    def left_out(self) -> list[Turn]:
        """The turns that something shorter stands for, and that no message shows."""
        return [
            turn
            for history in self._histories
            for step in history.steps
            if (through := bound(history, step))
            for turn in self._only_here(step.turns)
            if _number(turn) <= through
        ]

    def _parts(self, history: TaskHistory, step: StepHistory) -> Iterator[str]:
        level, through = self._level(step), bound(history, step)
        later = [turn for turn in step.turns if turn.position is None and _number(turn) > through] if step.apart else []
        is_within = any(one.level != "full" for one in history.chain(step.step_id) if one is not step)
        if is_within:
            yield from map(told, later)
        elif level == "full":
            yield from map(told, self._only_here(step.turns) if through else later)
        elif through:
            yield from self._instead(step, level, step.covered())
            yield from map(told, later)
        elif later:
            yield from self._instead(step, level, later)

    def _instead(self, step: StepHistory, level: StepVisibility, turns: Sequence[Turn]) -> Iterator[str]:
        """What stands for turns that the messages do not show."""
        if level == "summary" and step.summary:
            yield step.summary
        elif level == "condensed":
            yield from (clipped(told(turn), _CONDENSED) for turn in key_turns(self._only_here(turns)))
        yield f"_{expand_hint(step.step_id)}_"

    def _only_here(self, turns: Sequence[Turn]) -> list[Turn]:
        """Those of the turns that no message shows."""
        return [turn for turn in turns if turn.position is None or is_folded(self._folds, turn.position)]

    def _level(self, step: StepHistory) -> StepVisibility:
        level = self._resolver.resolve(step.step_id, step.visibility if step.summary is not None else None)
        return "full" if level == "summary" and not step.summary else level


def told(turn: Turn) -> str:
    """A turn as the section shows it."""
    who = f"[{turn.tool_name or 'tool'}]" if turn.role == "tool" else turn.role.title()
    return f"**{who}**: {turn.told}"


def is_folded(folds: Sequence[StepFold], position: int) -> bool:
    """Whether a message is one of those that folds hide; the folds stand in order."""
    at = bisect_right(folds, position, key=lambda fold: fold.start) - 1
    return at >= 0 and position < folds[at].stop


def _number(turn: Turn) -> int:
    return turn.turn_id or 0


ExpandMode: TypeAlias = Literal["result", "view"]
FoldMode: TypeAlias = Literal["now", "when_full"]

_GUIDE: Final = (
    f"What was said stands in the conversation, until you put a summary in its place with `{SUMMARIZE_STEP}`: do so when "
    f"you no longer need the details of a step. Nothing is lost: `{EXPAND_STEP}` shows all of it again."
)
_EMPTY: Final = "<no history recorded>"


class TaskHistorySection(Section[None]):
    """Renders conversation history organized by plan steps.

    It shows what the messages do not: steps that were summarised, and what was said in conversations that are over. With
    a `StepHistoryManager` these leave the messages, so nothing stands twice in a view. With `model`, the model can ask how
    full its context is. `expand` says how a step is shown again: as the tool's result, which leaves the prompt and its
    cache alone, or in the view itself, in its old place, for which the call raises `VisibilityExpansionRequired`. `fold`
    says when a summary takes the place of its step: now, or when a `StepBudget` finds the window full.

    When a step is summarised, the last `keep_tokens` of the conversation stay until the plan changes the next time: what
    comes next is mostly about them. Beside the summaries stands what was named in those steps, up to `max_ledger_tokens`.

    Raises:
        InvalidSetting: there is no such way to expand or to fold, or a number is negative.
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
        max_ledger_tokens: int = MAX_LEDGER,
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
        self._ledgers: WeakKeyDictionary[Session, StepLedger] = WeakKeyDictionary()
        self._resolver = resolver or StepVisibilityResolver()
        if session is not None:
            _install(session)
        tools = HistoryTools(
            key,
            session,
            model,
            in_view=expand == "view",
            at_once=fold == "now",
            keep_tokens=kept_of(model) if keep_tokens is None else keep_tokens,
        )
        super().__init__(
            title=title,
            key=key,
            tools=tools.tools(),
            accepts_overrides=accepts_overrides,
            visibility=SectionVisibility.FULL,
        )

    def body(self, params: None, depth: int, number: str, *, path: SectionPath, context: RenderContext) -> str:  # noqa: ARG002
        histories = self._histories(context)
        if not histories:
            return f"{_GUIDE}\n\n{_EMPTY}"
        shown = Shown(histories, self._overridden(path, context))
        parts = [_GUIDE]
        for history in histories[:-1]:
            told = [f"Step {step.step_id}, {step.step_title}: {text}" for step, text in shown.steps(history) if text]
            parts += [f"**Earlier task**: {history.objective}", *told] if told else []
        latest = histories[-1]
        if latest.objective:
            parts.append(f"**Objective**: {latest.objective}")
        steps = []
        for place, (step, text) in enumerate(shown.steps(latest), 1):
            marker = " [active]" if step.step_id == latest.active_step_id else ""
            heading = f"{'#' * min(depth + 3, 6)} {number.rstrip('.')}.{place}. {step.step_title}{marker}"
            steps.append(f"{heading}\n\n{text}".strip())
        if noted := self._ledger(context, shown, "\n\n".join([*parts, *steps])):
            parts.append(noted)  # before the steps, for below the last one it would be that step's
        parts += steps
        return "\n\n".join(parts if len(parts) > 1 else [*parts, _EMPTY])

    def _ledger(self, context: RenderContext, shown: Shown, said: str) -> str:
        session = session_of(context, self._session)
        if session is None or not self._max_ledger_tokens:
            return ""
        plan = session.query(Plan).latest()
        ahead = [] if plan is None else [step.title for step in plan.steps if step.status != "done"]
        ledger = self._ledgers.setdefault(session, StepLedger(self._max_ledger_tokens))
        return ledger.text(shown.left_out(), said=said, ahead=ahead)

    def outline(self, params: None, *, path: SectionPath, context: RenderContext) -> str:  # noqa: ARG002
        """The titles alone. What each step shows is kept for when the section is opened again."""
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
        _install(session)
        return session.query(TaskHistory).all()

    def _overridden(self, path: SectionPath, context: RenderContext) -> StepVisibilityResolver:
        """With what the call wants of single steps: `(…, "task-history", "step-3")` shown as a summary.

        In full is what `ExpandStep` does, so that whoever goes on with the session sees the same.
        """
        steps = {
            int(each[-1].removeprefix("step-"))
            for each, wanted in context.visibility_overrides.items()
            if each[:-1] == path and each[-1].removeprefix("step-").isdigit() and wanted is SectionVisibility.SUMMARY
        }
        return self._resolver.with_overrides(dict.fromkeys(steps, "summary")) if steps else self._resolver


def _install(session: Session) -> None:
    install_plan(session)
    install_history(session)
