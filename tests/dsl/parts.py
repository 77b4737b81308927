"""What the tests of running programs share: a real server for all models, and what was said in a workflow."""

import asyncio
from contextlib import asynccontextmanager

from minutebook import check
from minutebook.agent import RetryPolicy
from minutebook.compaction.extractive import ExtractiveSummarizer
from minutebook.dsl.models import provider_adapters
from minutebook.dsl.workflow import DslWorkflow
from minutebook.record.entry import ConversationEntry
from minutebook.record.finding import errors
from minutebook.testing import LoopbackProvider
from minutebook.wire import entry_to_provider_message

HEAD = """
model main:
    provider: openai
    name: gpt-4o
    max_input_tokens: 8000

prompt p:
    Be brief.
"""


async def at_once(seconds):
    await asyncio.sleep(0)


def quick(provider, **options):
    """Adapters that ask this server and wait for nothing."""
    retry_policy = RetryPolicy(**{"attempts": 1, "sleep": at_once, **options})
    return provider_adapters(base_url=provider.base_url, environment={}, retry_policy=retry_policy)


@asynccontextmanager
async def opened(program, model, *, server=None, **options):
    """A workflow whose models are all this one, on a real server."""
    with LoopbackProvider(model, **(server or {})) as provider:
        options = {"adapters": quick(provider), "summarizer": ExtractiveSummarizer(), **options}
        async with DslWorkflow(program, **options) as workflow:
            workflow.provider = provider
            yield workflow


def played(program, model, *inputs, server=None, run=None, **options):
    """The answers to these inputs, one after the other, and the workflow afterwards."""

    async def main():
        async with opened(program, model, server=server, **options) as workflow:
            return [await workflow.run(each, **(run or {})) for each in inputs], workflow

    return asyncio.run(main())


def streamed(program, model, given, *, server=None, run=None, **options):
    """All events of one run, and the workflow afterwards."""

    async def main():
        async with opened(program, model, server=server, **options) as workflow:
            return [event async for event in workflow.stream(given, **(run or {}))], workflow

    return asyncio.run(main())


def said(actor):
    """What the actor's session has recorded."""
    return [entry_to_provider_message(entry) for entry in actor.session.query(ConversationEntry).all()]


def assert_whole(workflow):
    """No session has a call without its result."""
    for actor in workflow.instances:
        assert not errors(check(said(actor))), actor.agent.name


def texts(request):
    """All that a request says, in one."""
    return str(request.body)
