"""A run of an agent program at the command line: the answer to stdout, what happens on the way to stderr."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click

from minutebook.agent.events import AnswerRestarted, ToolAnswered, ToolCalled
from minutebook.agent.request import TextDelta
from minutebook.cli.screen import one_line
from minutebook.cli.stops import Stops
from minutebook.cli.voice import asking_again, shown
from minutebook.compaction.events import HistoryCompacted
from minutebook.compaction.registry import strategy_names
from minutebook.dsl.adapters import provider_adapters
from minutebook.dsl.compile import compile_agents
from minutebook.dsl.happening import AgentEvent, WorkflowFinished
from minutebook.dsl.spec import McpProcess, McpServer, ToolOrigin
from minutebook.dsl.workflow import DslWorkflow
from minutebook.errors import InvalidSetting
from minutebook.prompt.dump import dump
from minutebook.prompt.markdown import shown as text_of

_LONGEST = 100
"""Characters of a tool's arguments or result that a line shows."""


def run_program(
    text: str,
    source: str,
    given: str,
    *,
    base_url: str | None,
    agent: str | None,
    flow: str | None,
    settings: Sequence[str],
    externals: Sequence[str],
    as_json: bool,
) -> None:
    """Compile, run, and print.

    Raises:
        ProgramInvalid: it cannot be compiled.
        InvalidSetting: it cannot be run so.
    """
    brought = dict(map(_external, externals))
    spec = compile_agents(text, source=source, strategies=strategy_names(), externals=tuple(brought))
    if os.getcwd() not in sys.path:  # noqa: PTH109 - what stands in the path is text
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - same
    telling = _Telling(quiet=as_json)

    async def work() -> Any:
        adapters = provider_adapters(base_url=base_url)
        result = None
        async with DslWorkflow(spec, adapters=adapters, externals=brought) as workflow:
            async for event in workflow.stream(given, agent=agent, flow=flow, values=dict(map(_setting, settings))):
                if isinstance(event, WorkflowFinished):
                    result = event.result
                else:
                    telling.hear(
                        event, streams=(flow is None and (agent is not None or _begins_with_agent(spec.entry)))
                    )
        return result

    with Stops() as stops:
        try:
            result = stops.run(work())
        finally:
            telling.end()
    if as_json:
        click.echo(json.dumps({"result": dump(result), "notices": telling.notices}, indent=2))
    elif not telling.spoke:
        click.echo(shown(text_of(result)))


class _Telling:
    """Shows a run as it goes."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.notices: list[str] = []
        self.spoke = False
        self._open = False

    def hear(self, event: AgentEvent, *, streams: bool) -> None:
        match event.event:
            case TextDelta(text) if streams and not event.depth and not self.quiet:
                click.echo(shown(text), nl=False)
                self.spoke = self._open = True
            case HistoryCompacted() as compacted:
                self.notices.append(compacted.notice)
                self._note(event, compacted.notice)
            case ToolCalled(call):
                self._note(event, f"→ {call.name} {_short(call.arguments)}")
            case ToolAnswered(call, content, success):
                self._note(event, f"{'←' if success else '✗'} {call.name} {_short(content)}")
            case AnswerRestarted(problem):
                self._note(event, asking_again(problem))
            case _:
                pass

    def end(self) -> None:
        """Leave the cursor at the beginning of a line."""
        if self._open:
            click.echo()
            self._open = False

    def _note(self, event: AgentEvent, text: str) -> None:
        self.end()
        click.echo(click.style(f"{event.name or 'agent'}: {text}", dim=True), err=True)


def _begins_with_agent(entry: Any) -> bool:
    return entry is not None and entry.kind == "agent"


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidSetting("--set", text, "NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _external(text: str) -> tuple[str, ToolOrigin]:
    name, equals, where = text.partition("=")
    if not equals or not name or not where.strip():
        raise InvalidSetting("--external", text, "NAME=URL or NAME=COMMAND")
    if where.startswith(("http://", "https://")):
        return name, McpServer(where)
    return name, McpProcess(tuple(shlex.split(where)))
