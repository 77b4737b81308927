"""Conversations of a store. Recorded requests are shown as they were sent; a conversation without any is replayed."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from minutebook.conversation.agent_call import PLAN_KIND
from minutebook.conversation.requests import read_requests
from minutebook.errors import ConversationNotFound, InvalidQuery, InvalidSetting, RequestRefused
from minutebook.planning.plan_snapshot import plans_of
from minutebook.record.message import Message
from minutebook.service.inspector.conversation import InspectedConversation, InspectedFold, StoredPlan, title_of
from minutebook.service.inspector.policy import ReplayPolicy, new_conversation, start_replay
from minutebook.service.inspector.source import (
    SORTS,
    BranchTree,
    ConversationList,
    ConversationSummary,
    ListFilter,
    branch_tree,
    summary_of,
)
from minutebook.service.inspector.sources.minutes import add_recorded_requests
from minutebook.store.base import ConversationStore
from minutebook.store.types import REQUEST_KIND, ConversationHeader, ConversationStatus, LoadedConversation

PAGE_ROWS: Final = 50
MAX_OPEN: Final = 16
"""Number of conversations that are kept in memory, of all tenants together."""
MAX_SUMMARIES: Final = 5_000
FIRST_MESSAGES: Final = 100
"""Messages that a page shows while a long conversation is loaded."""
MAX_LISTED: Final = 2_000
"""Longer conversations are loaded in the background for the figures of the list."""
PAUSE_FACTOR: Final = 20
"""The figures of a long conversation are computed again after at least this many times the time that they took last."""
LIST_SECONDS: Final = 0.3
"""How long a list may load conversations. The page asks again for the others."""
WAIT_SECONDS: Final = 0.15
MAX_FILTERED: Final = 1_000
"""Number of conversations, the newest, that a list with a filter or another order searches."""
MAX_BRANCH_PAGES: Final = 10
"""Pages of 200 conversations of a recipient that are read to find branches, the newest first."""
_PURGED: Final[Message] = {"role": "system", "content": "(purged by retention)"}


@dataclass(frozen=True, slots=True)
class _State:
    """What changes when a conversation does."""

    version: int
    status: str
    newest: tuple[str, int] | None
    """The id of the newest request, and the length of its document."""
    folds: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class _KnownSummary:
    """A row of the list."""

    version: int
    """That of the conversation when its figures were computed."""
    summary: ConversationSummary
    next_at: float
    """From then on, as monotonic time, a long conversation that has changed is loaded again."""


@dataclass(slots=True)
class OpenConversations:
    """Conversations of stores that were opened, kept for the next request."""

    items: OrderedDict[tuple[str, str], tuple[_State, asyncio.Task[InspectedConversation]]] = field(
        default_factory=OrderedDict
    )
    """Each with the task that loads it."""
    summaries: OrderedDict[tuple[str, str], _KnownSummary] = field(default_factory=OrderedDict)
    """Rows of the list."""
    tasks: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)
    """Long conversations that are loaded for the list, at most one per tenant."""

    def get(self, key: tuple[str, str], state: _State) -> asyncio.Task[InspectedConversation] | None:
        cached = self.items.get(key)
        if cached is None or cached[0] != state:
            return None
        self.items.move_to_end(key)
        return cached[1]

    def put_summary(
        self, key: tuple[str, str], version: int, summary: ConversationSummary, seconds: float = 0.0
    ) -> None:
        """Keep a row that was computed in that time."""
        self.summaries[key] = _KnownSummary(version, summary, time.monotonic() + PAUSE_FACTOR * seconds)
        self.summaries.move_to_end(key)
        while len(self.summaries) > MAX_SUMMARIES:
            self.summaries.popitem(last=False)

    def put(self, key: tuple[str, str], state: _State, loading: asyncio.Task[InspectedConversation]) -> None:
        def remove_failed(task: asyncio.Task[InspectedConversation]) -> None:
            if (task.cancelled() or task.exception()) and self.items.get(key) == (state, task):
                del self.items[key]

        loading.add_done_callback(remove_failed)
        self.items[key] = state, loading
        self.items.move_to_end(key)
        while len(self.items) > MAX_OPEN:
            self.items.popitem(last=False)


Undo = Callable[[str, str], Awaitable[object]]
"""Undoes a fold of a conversation."""


class StoreSource:
    """The conversations of a store's tenant, or those of one recipient."""

    sorts: Sequence[str] = tuple(SORTS)
    filters: Sequence[str] = ("cut", "fold", "refusal", "error")
    is_live = True

    def __init__(
        self,
        store: ConversationStore,
        policy: ReplayPolicy,
        *,
        name: str,
        cache: OpenConversations,
        recipient: str | None = None,
        undo: Undo | None = None,
    ) -> None:
        self._store, self._policy, self._cache, self._recipient = store, policy, cache, recipient
        self.name, self._undo = name, undo
        self.can_write = undo is not None

    async def list(self, query: ListFilter) -> ConversationList:
        if query.q.strip():
            return await self._search(query)
        if query.needs_figures:
            return await self._filter(query)
        skipped, cursor, summaries = 0, None, list[ConversationSummary]()
        deadline = time.monotonic() + LIST_SECONDS
        while len(summaries) < PAGE_ROWS:
            page = await self._store.list(recipient=self._recipient, cursor=cursor, limit=PAGE_ROWS)
            for header in page.items:
                if skipped < query.after:
                    skipped += 1
                elif len(summaries) < PAGE_ROWS:
                    summaries.append(await self._summary(header, deadline))
            cursor = page.cursor
            if cursor is None:
                break
        following = query.after + PAGE_ROWS if len(summaries) == PAGE_ROWS else None
        is_complete = all(summary.cost is not None for summary in summaries)
        total = query.after + len(summaries)
        return ConversationList(
            items=summaries, total=total, next=following, models=_models(summaries), is_complete=is_complete
        )

    async def _filter(self, query: ListFilter) -> ConversationList:
        """The newest conversations that match. Those whose figures are not known yet are added by a later list."""
        deadline, cursor = time.monotonic() + LIST_SECONDS, None
        summaries, is_complete, count = list[ConversationSummary](), True, 0
        while count < MAX_FILTERED:
            page = await self._store.list(recipient=self._recipient, cursor=cursor, limit=200)
            for header in page.items:
                count += 1
                if time.monotonic() < deadline or (self._store.tenant, header.id) in self._cache.summaries:
                    summaries.append(await self._summary(header, deadline))
                    is_complete = is_complete and summaries[-1].cost is not None
                else:
                    is_complete = False
            cursor = page.cursor
            if cursor is None:
                break
        found = sorted(filter(query.matches, summaries), key=SORTS[query.sort])
        following = query.after + PAGE_ROWS
        return ConversationList(
            items=found[query.after : following],
            total=len(found),
            next=following if following < len(found) else None,
            models=_models(summaries),
            is_complete=is_complete,
            newest=None if cursor is None else count,
        )

    async def _search(self, query: ListFilter) -> ConversationList:
        found: dict[str, ConversationSummary] = {}
        is_complete = True
        deadline = time.monotonic() + LIST_SECONDS if query.needs_figures else 0.0
        with suppress(ConversationNotFound, InvalidSetting):  # the query may be an id
            summary = await self._summary(await self._header(query.q.strip()), deadline)
            is_complete = summary.cost is not None or not query.needs_figures
            if query.matches(summary):
                found[summary.id] = summary
        try:
            page = await self._store.search(query.q, recipient=self._recipient, limit=100)
        except InvalidQuery as error:  # also while a query is being typed
            items = list(found.values())
            return ConversationList(items=items, total=len(items), problem="" if items else str(error))
        for hit in page.items:
            if hit.conversation not in found and len(found) < PAGE_ROWS:
                summary = await self._summary(await self._store.header(hit.conversation), deadline)
                is_complete = is_complete and (summary.cost is not None or not query.needs_figures)
                if query.matches(summary):
                    found[hit.conversation] = replace(summary, snippet=hit.snippet, snippet_position=hit.position)
        items = sorted(found.values(), key=SORTS[query.sort]) if query.sort != "recent" else list(found.values())
        return ConversationList(items=items, total=len(items), models=_models(items), is_complete=is_complete)

    async def _summary(self, header: ConversationHeader, deadline: float) -> ConversationSummary:
        """A row of the list: with all figures if they are known or the deadline allows to load the conversation.

        Otherwise it has the figures of an earlier version, or is made from the first messages and the newest request.
        A long conversation is loaded in the background, and a later list has its figures.
        """
        is_live = header.status is not ConversationStatus.IDLE
        key = self._store.tenant, header.id
        known = self._cache.summaries.get(key)
        if known is not None and known.version == header.version:
            return replace(known.summary, is_live=is_live)
        if header.length <= MAX_LISTED and time.monotonic() < deadline:
            conversation = await self.open(header.id)
            if conversation.is_complete:
                summary = summary_of(conversation, header.updated_at)
                self._cache.put_summary(key, header.version, summary)
                return replace(summary, is_live=is_live)
        is_due = known is None or time.monotonic() >= known.next_at
        if header.length > MAX_LISTED and is_due and all(tenant != key[0] for tenant, _ in self._cache.tasks):
            task = self._cache.tasks[key] = asyncio.create_task(self._load_summary(header))
            task.add_done_callback(lambda _: self._cache.tasks.pop(key))
        if known is not None:
            return replace(
                known.summary,
                messages=header.length,
                turns=header.turns,
                updated_at=header.updated_at,
                is_live=is_live,
            )
        start = await self._store.load(header.id, since=header.first, limit=header.lead + 2)
        newest = (await self._store.documents(header.id, REQUEST_KIND, limit=1, newest_first=True)).items
        minutes: Mapping[str, Any] = newest[0].body if newest else {}
        return ConversationSummary(
            id=header.id,
            title=title_of(start.messages, header.labels.get("title")) or header.id,
            model=minutes.get("model") or next((entry.model for entry in start.entries if entry.model), None),
            messages=header.length,
            turns=header.turns,
            record_tokens=minutes.get("tokens_before"),
            sent_tokens=minutes.get("tokens_after"),
            updated_at=header.updated_at,
            is_live=is_live,
            source=header.id,
        )

    async def _load_summary(self, header: ConversationHeader) -> None:
        """Put all figures of a conversation into the cache. The conversation itself is not kept."""
        started = time.monotonic()
        conversation = await self._load(header, await self._folds(header.id))
        while not conversation.is_complete:  # noqa: ASYNC110 - the event is that of a thread
            await asyncio.sleep(WAIT_SECONDS)
        summary = summary_of(conversation, header.updated_at)
        seconds = time.monotonic() - started
        self._cache.put_summary((self._store.tenant, header.id), header.version, summary, seconds)

    async def state(self, conversation_id: str) -> str:
        header = await self._header(conversation_id)
        newest = (await self._store.documents(conversation_id, REQUEST_KIND, limit=1, newest_first=True)).items
        return f"{header.version} {header.status.value} {[(item.id, len(str(item.body))) for item in newest]}"

    async def open(self, conversation_id: str) -> InspectedConversation:
        _, loading = await self._start_loading(conversation_id)
        return await _wait_for_replay(await asyncio.shield(loading))

    async def open_first(self, conversation_id: str) -> InspectedConversation:
        header, loading = await self._start_loading(conversation_id)
        if header.length > MAX_LISTED and not loading.done():
            await asyncio.wait([loading], timeout=WAIT_SECONDS)
            if not loading.done():
                start = await self._store.load(header.id, since=header.first, limit=FIRST_MESSAGES)
                return self._conversation(header, start, is_replay=False)
        return await _wait_for_replay(await asyncio.shield(loading))

    async def _start_loading(
        self, conversation_id: str
    ) -> tuple[ConversationHeader, asyncio.Task[InspectedConversation]]:
        """The task that loads a conversation. All requests that need the conversation wait for the same one."""
        header = await self._header(conversation_id)
        folds = await self._folds(conversation_id)
        newest = (await self._store.documents(conversation_id, REQUEST_KIND, limit=1, newest_first=True)).items
        state = _State(
            header.version,
            header.status.value,
            (newest[0].id, len(str(newest[0].body))) if newest else None,
            tuple((item.fold.id, item.undone_at is None) for item in folds),
        )
        key = self._store.tenant, conversation_id
        loading = self._cache.get(key, state)
        if loading is None:
            loading = asyncio.create_task(self._load(header, folds))
            self._cache.put(key, state, loading)
        return header, loading

    async def _folds(self, conversation_id: str) -> Sequence[InspectedFold]:
        return [
            InspectedFold(item.fold, item.created_at, item.undone_at, item.sealed)
            for item in await self._store.folds(conversation_id)
        ]

    async def _header(self, conversation_id: str) -> ConversationHeader:
        header = await self._store.header(conversation_id)
        if self._recipient is not None and header.recipient != self._recipient:
            raise ConversationNotFound(conversation_id)
        return header

    async def _load(self, header: ConversationHeader, folds: Sequence[InspectedFold]) -> InspectedConversation:
        loaded = await self._store.load(header.id, since=header.first)
        requests = [document.body async for _, document in read_requests(self._store, header.id)]
        conversation = await asyncio.to_thread(
            self._conversation,
            header,
            loaded,
            model=next((body["model"] for body in reversed(requests) if body.get("model")), None),
            folds=folds,
            is_replay=not requests,
            plan=await self._plan(header.id),
        )
        if not requests:
            start_replay(conversation, self._policy)
            return conversation
        await asyncio.to_thread(add_recorded_requests, conversation, requests)
        return conversation

    def _conversation(
        self, header: ConversationHeader, loaded: LoadedConversation, *, model: str | None = None, **facts: Any
    ) -> InspectedConversation:
        """A conversation of messages that were loaded, without requests. `facts` are further fields."""
        entries = loaded.entries
        return new_conversation(
            header.id,
            [*([_PURGED] * header.first), *loaded.messages],
            title=header.labels.get("title"),
            models=self._policy.models,
            model=self._policy.model
            or model
            or next((entry.model for entry in reversed(entries) if entry.model), None),
            times=[*([None] * header.first), *(entry.created_at for entry in entries)],
            source=header.id,
            version=header.version,
            origin=None if header.origin is None else (header.origin.conversation, header.origin.position),
            **facts,
        )

    async def _plan(self, conversation_id: str) -> StoredPlan | None:
        documents = (await self._store.documents(conversation_id, PLAN_KIND, limit=1)).items
        if not documents:
            return None
        plans, histories = plans_of(documents[0].body)
        return StoredPlan(plans[-1] if plans else None, histories) if plans or histories else None

    async def branches(self, conversation_id: str) -> BranchTree:
        root = await self._header(conversation_id)
        headers, cursor = {root.id: root}, None
        while root.origin is not None and root.origin.conversation not in headers:
            root = await self._header(root.origin.conversation)
            headers[root.id] = root
        # A fork is newer than its origin and has the same recipient.
        for _ in range(MAX_BRANCH_PAGES):
            page = await self._store.list(recipient=root.recipient, cursor=cursor, limit=200)
            headers |= {header.id: header for header in page.items}
            cursor = page.cursor
            if cursor is None or any(header.created_at < root.created_at for header in page.items):
                return BranchTree(branch_tree(headers, conversation_id))
        return BranchTree(branch_tree(headers, conversation_id), is_complete=False)

    async def undo_fold(self, conversation_id: str, fold_id: str) -> None:
        if self._undo is None:
            raise RequestRefused(403, "You may only read these conversations.", "read_only")
        await self._header(conversation_id)
        await self._undo(conversation_id, fold_id)


async def _wait_for_replay(conversation: InspectedConversation) -> InspectedConversation:
    """The conversation, after its replay or a short time."""
    if not conversation.is_complete:
        await asyncio.to_thread(conversation.finished.wait, WAIT_SECONDS)
    return conversation


def _models(summaries: Sequence[ConversationSummary]) -> list[str]:
    return sorted({summary.model for summary in summaries if summary.model})
