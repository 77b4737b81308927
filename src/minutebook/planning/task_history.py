"""The history of a task: its steps, the turns and the visibility of each, and extractive summaries."""

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
    """One message of the conversation, in the history of a plan step."""

    turn_id: int | None
    """The turn's number in the session. If it is None, the history assigns the next one."""
    role: TurnRole
    content: str
    tool_name: str | None = None
    """The tool that returned the result, if the turn is a tool result."""
    created_at: datetime | None = None
    """If it is None, the session's clock sets it."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tool calls of an assistant turn."""
    tool_call_id: str | None = None
    """The call that a tool result answers."""
    evaluation_id: UUID | None = None
    entry_sequence: int | None = None
    """The sequence number of the entry in that evaluation."""
    position: int | None = None
    """The position in the current conversation; None if the turn is in the history only."""

    @classmethod
    def of(cls, entry: ConversationEntry, turn_id: int, position: int | None, tool_name: str | None) -> "Turn":
        """The turn for an entry of the record."""
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
    def text(self) -> str:
        """The content, then the tool calls."""
        calls = [f"→ {call.name}({call.arguments})" for call in self.tool_calls]
        return "\n".join([*([self.content] if self.content or not calls else []), *calls])

    def render(self) -> str:
        """`[role] content`, or `[tool:name] content` for a result."""
        name = f":{self.tool_name}" if self.role == "tool" and self.tool_name else ""
        return f"[{self.role}{name}] {self.text}"

    def message(self) -> dict[str, Any]:
        """The turn as a provider message, for a summarizer."""
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
    """The first turn, the last turn and the most informative ones between them, in order.

    If they are longer than `max_characters`, every turn is cut to an equal share.

    Raises:
        InvalidSetting: `max_turns` or `max_characters` is less than 1.
    """
    if max_characters is not None and max_characters < 1:
        raise InvalidSetting("max_characters", max_characters, "1 or more, or None for no limit")
    turns = key_turns(step.turns, max_turns)
    texts = [turn.render() for turn in turns]
    if max_characters is not None and len("\n".join(texts)) > max_characters:
        share = max(1, max_characters // len(texts) - 1)
        texts = [excerpt(text, share) for text in texts]
    return "\n".join(texts)[:max_characters]


def key_turns(turns: Sequence[Turn], max_turns: int = 3) -> list[Turn]:
    """The most informative turns, at most `max_turns`, in order.

    They are selected in this order: the last turn, the first turn, tool results, other turns. Within the last two groups,
    turns with more distinctive terms come first.

    Raises:
        InvalidSetting: `max_turns` is less than 1.
    """
    if max_turns < 1:
        raise InvalidSetting("max_turns", max_turns, "1 or more")
    if len(turns) <= max_turns:
        return list(turns)

    def information(index: int) -> tuple[bool, int, int]:
        return turns[index].role == "tool", len(distinctive_terms(turns[index].content[:5_000])), index

    last_index = len(turns) - 1
    middle_indexes = sorted(range(1, last_index), key=information, reverse=True)
    return [turns[index] for index in sorted([last_index, 0, *middle_indexes][:max_turns])]


def excerpt(text: str, max_characters: int) -> str:
    """The text, cut to `max_characters` with an ellipsis if it is longer."""
    return text if len(text) <= max_characters else f"{text[: max(0, max_characters - 1)]}…"


StepVisibility: TypeAlias = Literal["full", "condensed", "summary", "title"]
"""How a step is shown: all turns, the most informative turns, the summary, or only the title."""

DEFAULT_KEEP_TOKENS: Final = 4_000
"""Tokens at the end of the conversation that a summary does not replace."""
_WINDOW_DIVISOR: Final = 8
"""At most 1/8 of the model's window is kept."""
_LEVELS: Final[tuple[StepVisibility, ...]] = get_args(StepVisibility)


def default_keep_tokens(model: ModelInfo | None) -> int:
    """`DEFAULT_KEEP_TOKENS`, or less if the model's window is small."""
    return DEFAULT_KEEP_TOKENS if model is None else min(DEFAULT_KEEP_TOKENS, model.room() // _WINDOW_DIVISOR)


def _require_level(name: str, level: object) -> None:
    if level not in _LEVELS:
        raise InvalidSetting(name, level, f"one of {', '.join(_LEVELS)}")


class StepVisibilityResolver:
    """Resolves visibility for individual history steps: an override, else what the history stores.

    The resolver affects `TaskHistorySection` only, not which messages are sent: that depends on the history alone, so no
    text is lost. A step that is folded in the history and `full` here is shown in full in the section.

    Raises:
        InvalidSetting: the default or an override is not a `StepVisibility`.
    """

    def __init__(
        self, *, default: StepVisibility = "full", overrides: Mapping[int, StepVisibility] | None = None
    ) -> None:
        _require_level("default", default)
        self._default: StepVisibility = default
        self._overrides = dict(overrides or {})
        for step_id, level in self._overrides.items():
            _require_level(f"overrides[{step_id}]", level)

    def resolve(self, step_id: int, stored: StepVisibility | None) -> StepVisibility:
        """The override of the step, else its stored visibility, else the default."""
        return self._overrides.get(step_id) or stored or self._default

    @property
    def step_ids(self) -> frozenset[int]:
        """The steps that have an override."""
        return frozenset(self._overrides)

    def with_overrides(self, more: Mapping[int, StepVisibility]) -> "StepVisibilityResolver":
        """A copy with more overrides, which take precedence over the existing ones."""
        return StepVisibilityResolver(default=self._default, overrides={**self._overrides, **more})


UNASSIGNED: Final = 0
"""The id of the step that collects turns outside any step."""
UNASSIGNED_TITLE: Final = "Outside any step"


@dataclass(frozen=True, slots=True)
class StepHistory:
    """The turns of one plan step, and how they are shown."""

    step_id: int
    step_title: str
    turns: tuple[Turn, ...] = ()
    summary: str | None = None
    """The text that is shown in place of the turns if the step is not shown in full."""
    visibility: StepVisibility = "full"
    parent_id: int | None = None
    """The id of the parent step, or None. If a step is folded, so are its substeps."""
    pinned: bool = False
    summarized_through: int = 0
    """The last turn id that the summary covers. Later turns of the step are shown in full."""
    fold_end: int = 0
    """The position up to which the summary replaces messages; later ones stay in the view. A change of the plan moves it
    towards the end."""
    kept_positions: tuple[int, ...] = ()
    """Messages before `fold_end` that stay in the view: the first and the newest request at the time of the fold."""
    keep_tokens: int = 0
    """Tokens at the end of the conversation that the summary does not replace."""
    detached: bool = False
    """Whether some turns are not in the current conversation, so that only the history can show them."""

    @property
    def level(self) -> StepVisibility:
        """The visibility, or "full" if the visibility is "summary" and there is no summary."""
        return "full" if self.visibility == "summary" and not self.summary else self.visibility

    def summarized_turns(self) -> tuple[Turn, ...]:
        """The turns that the summary covers."""
        return tuple(turn for turn in self.turns if (turn.turn_id or 0) <= self.summarized_through)

    def later_turns(self) -> tuple[Turn, ...]:
        """The turns after the summary."""
        return tuple(turn for turn in self.turns if (turn.turn_id or 0) > self.summarized_through)

    def render(self, *, include_turns: bool = True) -> str:
        """The step as text: the title, then all turns; or the text that replaces the summarized turns, then the later turns."""
        lines = [f"Step {self.step_id}: {self.step_title}"]
        turns = self.turns
        if self.level != "full":
            if self.level == "summary":
                lines.append(f"[Summary] {self.summary}")
            elif self.level == "condensed":
                lines += [f"  {turn.render()}" for turn in key_turns(self.summarized_turns())]
            lines.append(f"[{expand_hint(self.step_id)}]")
            turns = self.later_turns()
        return "\n".join(lines + ([f"  {turn.render()}" for turn in turns] if include_turns else []))


@dataclass(frozen=True, slots=True)
class StepFold:
    """Messages of a step that are not sent, from position `start` up to `stop`; the section shows the step instead."""

    step_id: int
    start: int
    stop: int
    fingerprint: str
    """Identifies the first message. The fold is not applied to a conversation that has another message there."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A tool call without a result so far, and the step that made it."""

    call_id: str
    tool_name: str
    task: int
    """The index of the step's `TaskHistory` in the session."""
    step_id: int
    turn_id: int


@dataclass(frozen=True, slots=True)
class ConversationExtent:
    """The length of the current conversation, and the positions of messages that a fold leaves in the view."""

    length: int = 0
    first_request: int | None = None
    newest_request: int | None = None
    last_exchange_start: int | None = None

    @property
    def fold_limit(self) -> int:
        """The position that no fold may go beyond, because the model is about to answer the last exchange."""
        return self.length if self.last_exchange_start is None else self.last_exchange_start

    @property
    def requests(self) -> tuple[int, ...]:
        """The positions of the first and the newest request."""
        return tuple(position for position in (self.first_request, self.newest_request) if position is not None)


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """The history of a conversation, organised by the steps of a plan."""

    objective: str
    active_step_id: int | None = None
    """The step that receives turns."""
    steps: tuple[StepHistory, ...] = ()
    next_turn_id: int = 1
    open_calls: tuple[OpenCall, ...] = ()
    extent: ConversationExtent = field(default_factory=ConversationExtent)
    folds: tuple[StepFold, ...] = ()
    """The messages that are not sent, also those of earlier tasks."""

    def step(self, step_id: int) -> StepHistory | None:
        """The step with that id, or None."""
        return next((step for step in self.steps if step.step_id == step_id), None)

    @property
    def subtasks(self) -> "tuple[TaskHistory, ...]":
        """The steps that have substeps, each as a separate task."""
        return tuple(
            TaskHistory(step.step_title, self.active_step_id, substeps)
            for step in self.steps
            if (substeps := tuple(_substeps(self.steps, step.step_id)))
        )

    def in_order(self) -> Iterator[StepHistory]:
        """The steps, each followed by its substeps."""
        step_ids = {step.step_id for step in self.steps}
        for step in self.steps:
            if step.parent_id not in step_ids:
                yield step
                yield from _substeps(self.steps, step.step_id)

    def step_and_parents(self, step_id: int) -> Iterator[StepHistory]:
        """A step, its parent, the parent's parent and so on."""
        step = self.step(step_id)
        while step is not None:
            yield step
            step = None if step.parent_id is None else self.step(step.parent_id)

    def step_and_substeps(self, step_id: int) -> Iterator[StepHistory]:
        """A step and all its substeps."""
        yield from (step for step in self.steps if step.step_id == step_id)
        yield from _substeps(self.steps, step_id)

    def turns_of(self, step_id: int) -> list[Turn]:
        """The turns of a step and of its substeps, in order of time."""
        turns = [turn for step in self.step_and_substeps(step_id) for turn in step.turns]
        return sorted(turns, key=lambda turn: turn.turn_id or 0)

    def render(self) -> str:
        """The task as text, each step shown by its visibility."""
        parts = []
        for step in self.in_order():
            title_line, newline, body = step.render().partition("\n")
            parts.append(f"{title_line}{' [active]' if step.step_id == self.active_step_id else ''}{newline}{body}")
        return "\n\n".join([f"Task: {self.objective}", *(parts or ["<no history recorded>"])])

    def to_json(self) -> str:
        """The history as one line of JSON."""
        return TypeRegistry(TaskHistory).slice_to_json(TaskHistory, [self])

    @classmethod
    def from_json(cls, text: str) -> "TaskHistory":
        """Parse the output of `to_json`, or the newest history in the output of `Snapshot.slice_to_json`.

        Raises:
            UnreadableInput: the text is neither.
        """
        histories = TypeRegistry(TaskHistory).slice_from_json(TaskHistory, text)
        if not histories:
            raise UnreadableInput("TaskHistory", "the slice is empty; pass the output of TaskHistory.to_json")
        return histories[-1]


def expand_hint(step_id: int) -> str:
    """The line that tells the model how to read a step in full."""
    return f"Call `expand_step` with step_id={step_id} and a reason to read all of it."


def _substeps(steps: tuple[StepHistory, ...], step_id: int) -> Iterator[StepHistory]:
    for step in steps:
        if step.parent_id == step_id:
            yield step
            yield from _substeps(steps, step.step_id)
