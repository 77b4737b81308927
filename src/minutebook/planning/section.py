"""The history in the prompt: each step by its visibility, and the tools by which the model decides about that."""

from typing import Final, Literal, TypeAlias, get_args
from weakref import WeakKeyDictionary

from minutebook.errors import InvalidSetting
from minutebook.planning.handling import session_of
from minutebook.planning.install import install_history, install_plan
from minutebook.planning.ledger import MAX_LEDGER, StepLedger
from minutebook.planning.level import StepVisibilityResolver, kept_of
from minutebook.planning.names import EXPAND_STEP, SUMMARIZE_STEP
from minutebook.planning.plan import Plan
from minutebook.planning.showing import Shown
from minutebook.planning.task import TaskHistory
from minutebook.planning.tools import history_tools
from minutebook.prompt.context import RenderContext
from minutebook.prompt.section import Section
from minutebook.prompt.visibility import SectionPath, SectionVisibility
from minutebook.session.session import Session
from minutebook.tokens.models import ModelInfo

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
        super().__init__(
            title=title,
            key=key,
            tools=history_tools(
                key,
                session,
                model,
                in_view=expand == "view",
                at_once=fold == "now",
                keep_tokens=kept_of(model) if keep_tokens is None else keep_tokens,
            ),
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
