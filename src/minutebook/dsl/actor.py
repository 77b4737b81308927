"""An agent in one conversation."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from minutebook.agent.deadline import Deadline
from minutebook.agent.events import RunEvent
from minutebook.agent.runner import ConversationRunner
from minutebook.compaction.manager import CompactionManager
from minutebook.compaction.shown import is_summary
from minutebook.dsl.handover import Relay, helper_tools
from minutebook.dsl.happening import AgentEvent, Tell, untold
from minutebook.dsl.instruction import prompt_of
from minutebook.dsl.placeholder import INPUT
from minutebook.dsl.spec import AgentSpec
from minutebook.errors import InvalidSetting
from minutebook.prompt.markdown import shown
from minutebook.record.message import text_of
from minutebook.record.transcript import Transcript
from minutebook.session.session import Session

if TYPE_CHECKING:
    from minutebook.dsl.cast import Cast

OUTPUT_ATTEMPTS = 3
"""How often an answer that is not of its schema is asked for."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Who watches a run, and from how far above."""

    tell: Tell = untold
    depth: int = 0

    @property
    def streaming(self) -> bool:
        return self.tell is not untold

    def deeper(self) -> "Watch":
        return replace(self, depth=self.depth + 1)


class Actor:
    """An agent, its session, and what was said in it so far. It does one run at a time."""

    def __init__(self, agent: AgentSpec, cast: "Cast", session: Session, parent: "Actor | None" = None) -> None:
        self.agent, self.cast, self.session, self.parent = agent, cast, session, parent
        self.adapter = cast.adapter(agent.model, agent.retry)
        self.conversation = Transcript(counter=self.adapter.counter)
        self.compactor: CompactionManager | None = cast.compactor(agent, session)
        self.busy = False

    async def run(self, given: Any, *, watch: Watch, deadline: Deadline | None = None, told: str = "") -> Any:
        """The agent's answer to an input: a text, or what it produces. `told` is what another agent shares with it.

        Raises:
            InvalidSetting: there is nothing to answer.
        """
        agent, spec = self.agent, self.cast.spec
        values = {INPUT: shown(given)}
        asked = spec.prompt(agent.prompt).fill(values) if agent.prompt else values[INPUT]
        if not asked.strip():
            expected = "something to answer, or the agent a `prompt` that says what to do"
            raise InvalidSetting(f"the input of agent {agent.name!r}", given, expected)
        relay = Relay(self.adapter)
        tools = [*await self.cast.toolbox.tools(agent.tools), *helper_tools(self, relay, watch)]
        runner = ConversationRunner(
            adapter=relay if agent.delegate else self.adapter,
            prompt=prompt_of(
                agent.name,
                spec.prompt(agent.instruction).fill(values),
                tools,
                spec.output_type(agent.produces) if agent.produces else None,
            ),
            session=self.session,
            request=f"{told}\n\n{asked}" if told else asked,
            conversation=self.conversation,
            deadline=self._deadline(deadline),
            compactor=self.compactor,
            max_output_attempts=OUTPUT_ATTEMPTS,
        )

        def emit(event: RunEvent) -> None:
            watch.tell(AgentEvent("agent", agent.name, event, self.session.session_id, watch.depth))

        response = await runner.run(emit, streaming=watch.streaming)
        return response.output

    def shared_summary(self) -> str:
        """The summary that stands for the old part of the conversation, where the policy shares it with helpers."""
        if self.compactor is None or not self.cast.spec.compaction.share:
            return ""
        fold = self.compactor.situation(self.conversation).summary
        return "\n\n".join(text_of(message) for message in fold.shown if is_summary(message)) if fold else ""

    def _deadline(self, given: Deadline | None) -> Deadline | None:
        if self.agent.timeout_seconds is None:
            return given
        own = Deadline.after(self.agent.timeout_seconds)
        return own if given is None or own.expires_at < given.expires_at else given
