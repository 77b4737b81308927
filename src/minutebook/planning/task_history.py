"""The history of a task: its steps, what was said in each, how much of it is shown, and extractive summaries."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args
from uuid import UUID

from minutebook.compaction.extractive import distinctive_terms
from minutebook.errors import InvalidSetting, UnreadableInput
from minutebook.record.entry import ConversationEntry, ToolCall
from minutebook.session.snapshot import TypeRegistry
from minutebook.tokens.models import ModelInfo

TurnRole: TypeAlias = Literal["user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Turn:
    """Single conversation turn associated with a plan step."""

    turn_id: int | None
    """Its number in the session; None lets the history give it the next one."""
    role: TurnRole
    content: str
    tool_name: str | None = None
    """Whose result it is, where it is one."""
    created_at: datetime | None = None
    """When it was said; the history's own clock, where nobody says."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What the assistant called."""
    tool_call_id: str | None = None
    """The call that a result answers."""
    evaluation_id: UUID | None = None
    entry_sequence: int | None = None
    """With the evaluation: the entry of the record that this is."""
    position: int | None = None
    """Where it stands in the conversation that is going on; None where it does not, and only the history has it."""

    @classmethod
    def of(cls, entry: ConversationEntry, turn_id: int, position: int | None, tool_name: str | None) -> "Turn":
        """An entry of the record as a turn."""
        role: Any = entry.role.value
        return cls(
            turn_id,
            role,
            entry.content or "",
            tool_name,
            entry.created_at,
            entry.tool_calls or (),
            entry.tool_call_id,
            entry.evaluation_id,
            entry.sequence,
            position,
        )

    @property
    def told(self) -> str:
        """All that it says: its words, then its calls."""
        calls = [f"→ {call.name}({call.arguments})" for call in self.tool_calls]
        return "\n".join([*([self.content] if self.content or not calls else []), *calls])

    def render(self) -> str:
        """`[role] content`, or `[tool:name] content` for a result."""
        name = f":{self.tool_name}" if self.role == "tool" and self.tool_name else ""
        return f"[{self.role}{name}] {self.told}"

    def message(self) -> dict[str, Any]:
        """The turn as a message, for whoever sums it up."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        if self.role == "tool":
            message |= {"tool_call_id": self.tool_call_id or "", "name": self.tool_name or "tool"}
        return message


def extractive_summary(step: "StepHistory", max_turns: int = 3, *, max_characters: int | None = None) -> str:
    """The first turn, the last one, and the most telling between them, in their order.

    With `max_characters` each turn is cut to its share of them.

    Raises:
        InvalidSetting: a number is not above 0.
    """
    if max_characters is not None and max_characters < 1:
        raise InvalidSetting("max_characters", max_characters, "a number above 0, or None for no limit")
    turns = key_turns(step.turns, max_turns)
    texts = [turn.render() for turn in turns]
    if max_characters is not None and len("\n".join(texts)) > max_characters:
        share = max(1, max_characters // len(texts) - 1)
        texts = [clipped(text, share) for text in texts]
    return "\n".join(texts)[:max_characters]


def key_turns(turns: Sequence[Turn], max_turns: int = 3) -> list[Turn]:
    """At most so many of the turns: the last, the first, then results before words, those with most facts before others.

    Raises:
        InvalidSetting: `max_turns` is not above 0.
    """
    if max_turns < 1:
        raise InvalidSetting("max_turns", max_turns, "1 or more")
    if len(turns) <= max_turns:
        return list(turns)

    def worth(index: int) -> tuple[bool, int, int]:
        return turns[index].role == "tool", len(distinctive_terms(turns[index].content[:5_000])), index

    last = len(turns) - 1
    between = sorted(range(1, last), key=worth, reverse=True)
    return [turns[index] for index in sorted([last, 0, *between][:max_turns])]


def clipped(text: str, length: int) -> str:
    """The text, or its beginning and a mark."""
    return text if len(text) <= length else f"{text[: max(0, length - 1)]}…"


StepVisibility: TypeAlias = Literal["full", "condensed", "summary", "title"]
"""All that was said; the turns that tell most; the summary; nothing but the title."""

KEEP: Final = 4_000
"""Tokens at the end of the conversation that summaries leave alone, where nobody says how many."""
_OF_WINDOW: Final = 8
LEVELS: Final[tuple[StepVisibility, ...]] = get_args(StepVisibility)


def kept_of(model: ModelInfo | None) -> int:
    """How much of the end of a conversation stays by default; no more than a small share of the model's window."""
    return KEEP if model is None else min(KEEP, model.room() // _OF_WINDOW)


def require_level(name: str, level: object) -> None:
    if level not in LEVELS:
        raise InvalidSetting(name, level, f"one of {', '.join(LEVELS)}")


class StepVisibilityResolver:
    """Resolves visibility for individual history steps: what is asked for here, else what the history says.

    It decides what the section shows. What the messages show is the history's alone, so nothing is lost: a step that is
    folded there and `full` here is told in the section, word for word.

    Raises:
        InvalidSetting: there is no such level.
    """

    def __init__(
        self, *, default: StepVisibility = "full", overrides: Mapping[int, StepVisibility] | None = None
    ) -> None:
        require_level("default", default)
        self._default: StepVisibility = default
        self._overrides = dict(overrides or {})
        for step_id, level in self._overrides.items():
            require_level(f"the override of step {step_id}", level)

    def resolve(self, step_id: int, stored: StepVisibility | None) -> StepVisibility:
        """The override of the step, or what is stored for it, or the default where nothing is."""
        return self._overrides.get(step_id) or stored or self._default

    def with_overrides(self, more: Mapping[int, StepVisibility]) -> "StepVisibilityResolver":
        """The same with these overrides too; they win over those that are there."""
        return StepVisibilityResolver(default=self._default, overrides={**self._overrides, **more})


UNASSIGNED: Final = 0
"""The id of what was said outside of any step."""
UNASSIGNED_TITLE: Final = "Outside any step"


@dataclass(frozen=True, slots=True)
class StepHistory:
    """Conversation history scoped to a single plan step."""

    step_id: int
    step_title: str
    turns: tuple[Turn, ...] = ()
    summary: str | None = None
    """What stands for it when it is not shown in full; kept when it is."""
    visibility: StepVisibility = "full"
    parent_id: int | None = None
    """The step that it is a part of. Where that is folded, so is this one."""
    pinned: bool = False
    summarized_through: int = 0
    """The last turn of the session that the summary stands for. What is said later in this step stays as it is."""
    cut: int = 0
    """Where the summary ends to stand for messages: what was being said at the time stays, until the plan changes."""
    spared: tuple[int, ...] = ()
    """Messages before the cut that stay all the same: the first and the newest request at that time."""
    keep_tokens: int = 0
    """How much of the end of the conversation the summary leaves alone."""
    apart: bool = False
    """Whether some of its turns stand in no conversation, so that only the history can show them."""

    @property
    def level(self) -> StepVisibility:
        """How much is shown; in full where there is no summary to show."""
        return "full" if self.visibility == "summary" and not self.summary else self.visibility

    def covered(self) -> tuple[Turn, ...]:
        """The turns that the summary stands for."""
        return tuple(turn for turn in self.turns if (turn.turn_id or 0) <= self.summarized_through)

    def newer(self) -> tuple[Turn, ...]:
        """The turns that came after the summary."""
        return tuple(turn for turn in self.turns if (turn.turn_id or 0) > self.summarized_through)

    def render(self, *, include_turns: bool = True) -> str:
        """The step as text: its title, then its turns, or what stands for them and the turns that came later."""
        lines = [f"Step {self.step_id}: {self.step_title}"]
        turns = self.turns
        if self.level != "full":
            if self.level == "summary":
                lines.append(f"[Summary] {self.summary}")
            elif self.level == "condensed":
                lines += [f"  {turn.render()}" for turn in key_turns(self.covered())]
            lines.append(f"[{expand_hint(self.step_id)}]")
            turns = self.newer()
        return "\n".join(lines + ([f"  {turn.render()}" for turn in turns] if include_turns else []))


@dataclass(frozen=True, slots=True)
class StepFold:
    """Messages `start` up to `stop` of the conversation are not sent: the section says in their place what `step_id` was.

    `mark` is whose message the first one is and the call it makes or answers, by which a conversation is known that the
    fold was not made for.
    """

    step_id: int
    start: int
    stop: int
    mark: str


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call whose result is still to come, and the step it was made in."""

    call_id: str
    tool_name: str
    task: int
    """Which of the session's tasks that step is of, counted from the first."""
    step_id: int
    turn_id: int


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the conversation has come that is going on."""

    length: int = 0
    first_request: int | None = None
    newest_request: int | None = None
    last_start: int | None = None
    """Where the exchange begins that was last said."""

    @property
    def cut(self) -> int:
        """How far a summary may stand for messages: not for those that the model is about to answer."""
        return self.length if self.last_start is None else self.last_start

    @property
    def requests(self) -> tuple[int, ...]:
        """The first request and the newest."""
        return tuple(at for at in (self.first_request, self.newest_request) if at is not None)


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """Plan-aligned conversation history with per-step summarization."""

    objective: str
    active_step_id: int | None = None
    """The step that receives turns."""
    steps: tuple[StepHistory, ...] = ()
    next_turn_id: int = 1
    open_calls: tuple[OpenCall, ...] = ()
    reach: Reach = field(default_factory=Reach)
    folds: tuple[StepFold, ...] = ()
    """What the messages do not show, also of the tasks before this one. It changes only when a step is folded or opened."""

    def step(self, step_id: int) -> StepHistory | None:
        """The step of that id, if it is one of these."""
        return next((step for step in self.steps if step.step_id == step_id), None)

    @property
    def subtasks(self) -> "tuple[TaskHistory, ...]":
        """The steps that have parts, each as a task of its own."""
        return tuple(
            TaskHistory(step.step_title, self.active_step_id, parts)
            for step in self.steps
            if (parts := tuple(_below(self.steps, step.step_id)))
        )

    def in_order(self) -> Iterator[StepHistory]:
        """The steps with the parts of each right after it."""
        known = {step.step_id for step in self.steps}
        for step in self.steps:
            if step.parent_id not in known:
                yield step
                yield from _below(self.steps, step.step_id)

    def chain(self, step_id: int) -> Iterator[StepHistory]:
        """A step, the one it is a part of, and so on."""
        step = self.step(step_id)
        while step is not None:
            yield step
            step = None if step.parent_id is None else self.step(step.parent_id)

    def family(self, step_id: int) -> Iterator[StepHistory]:
        """A step and all that are parts of it."""
        yield from (step for step in self.steps if step.step_id == step_id)
        yield from _below(self.steps, step_id)

    def turns_of(self, step_id: int) -> list[Turn]:
        """What was said in a step and in its parts, in the order in which it was said."""
        turns = [turn for step in self.family(step_id) for turn in step.turns]
        return sorted(turns, key=lambda turn: turn.turn_id or 0)

    def render(self) -> str:
        """The whole task as text, each step by its visibility."""
        parts = []
        for step in self.in_order():
            head, newline, rest = step.render().partition("\n")
            parts.append(f"{head}{' [active]' if step.step_id == self.active_step_id else ''}{newline}{rest}")
        return "\n\n".join([f"Task: {self.objective}", *(parts or ["<no history recorded>"])])

    def to_json(self) -> str:
        """The history as one line of JSON."""
        return TypeRegistry(TaskHistory).slice_to_json(TaskHistory, [self])

    @classmethod
    def from_json(cls, text: str) -> "TaskHistory":
        """The history that `to_json` wrote, or the newest of a slice that `Snapshot.slice_to_json` wrote.

        Raises:
            UnreadableInput: the text is neither.
        """
        found = TypeRegistry(TaskHistory).slice_from_json(TaskHistory, text)
        if not found:
            raise UnreadableInput("TaskHistory", "is empty; give what TaskHistory.to_json wrote")
        return found[-1]


def expand_hint(step_id: int) -> str:
    """How the model can read all of a step."""
    return f"Call `expand_step` with step_id={step_id} and a reason to read all of it."


def _below(steps: tuple[StepHistory, ...], step_id: int) -> Iterator[StepHistory]:
    for step in steps:
        if step.parent_id == step_id:
            yield step
            yield from _below(steps, step.step_id)
