"""Conversations of files, in every format that can be read."""

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

from minutebook.errors import ConversationNotFound, RequestRefused, UnreadableInput
from minutebook.formats import Source, SourceConversation, read
from minutebook.history.names import full_text
from minutebook.service.inspector.conversation import InspectedConversation, InspectedFold
from minutebook.service.inspector.policy import ReplayPolicy, new_conversation, replay, start_replay
from minutebook.service.inspector.source import (
    SORTS,
    BranchNode,
    BranchTree,
    ConversationList,
    ConversationSummary,
    ListFilter,
    summary_of,
)

PAGE_ROWS: Final = 50
MAX_KEPT_MESSAGES: Final = 300_000
"""Conversations are kept in memory until they have this many messages in total; others are read again when they are opened."""
MAX_OPEN: Final = 6
"""Maximum number of these other conversations in memory."""
WAIT_SECONDS: Final = 0.15
"""How long a page waits for the files or the replay before it shows what is ready."""
MAX_SUMMARIZED: Final = 400
"""Number of conversations that are replayed in the background for the figures of the list."""


@dataclass(frozen=True, slots=True)
class _Location:
    """The file of a conversation and its index in the file."""

    path: Path
    index: int
    format: str


class FileSource:
    """The conversations of files. They are read in a thread; every view is a replay."""

    can_write = False
    is_live = False
    sorts: Sequence[str] = tuple(SORTS)
    filters: Sequence[str] = ("cut", "fold", "refusal")

    def __init__(self, paths: Sequence[str | Path], policy: ReplayPolicy, *, format_name: str | None = None) -> None:
        self._paths, self._policy, self._format = [Path(path) for path in paths], policy, format_name
        self.name = str(self._paths[0]) if len(self._paths) == 1 else f"{len(self._paths)} files"
        self._locations: dict[str, _Location] = {}
        self._summaries: dict[str, ConversationSummary] = {}
        self._skipped: list[str] = []
        self._all_files_read = threading.Event()
        self._has_all_figures = False
        self._cache: OrderedDict[str, InspectedConversation] = OrderedDict()
        self._kept: dict[str, InspectedConversation] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Read the files in a thread."""
        threading.Thread(target=self._read_all, daemon=True, name="inspector").start()

    def _read_all(self) -> None:
        message_count = 0
        try:
            for path in self._paths:
                try:
                    for index, source in enumerate(read(Source(path), self._format)):
                        conversation = self._add(path, index, source)
                        message_count += len(conversation.messages)
                        if message_count < MAX_KEPT_MESSAGES:
                            self._kept[conversation.id] = conversation
                except (UnreadableInput, OSError) as error:
                    self._skipped.append(str(error))
        finally:
            self._all_files_read.set()
        newest_first = sorted(self._summaries.values(), key=SORTS["recent"])
        try:
            for summary in newest_first[:MAX_SUMMARIZED]:
                conversation = self._load(summary.id)
                replay(conversation, self._policy)
                self._summaries[summary.id] = summary_of(conversation, summary.updated_at)
        finally:
            self._has_all_figures = True

    def _add(self, path: Path, index: int, source: SourceConversation) -> InspectedConversation:
        conversation_id = hashlib.sha256(f"{path}\n{index}".encode()).hexdigest()[:12]
        conversation = file_conversation(conversation_id, source, self._policy, place=self._place(path))
        self._locations[conversation_id] = _Location(path, index, source.format)
        updated_at = next((item.at for item in reversed(source.items) if item.at), None) or source.created_at
        updated_at = updated_at or datetime.fromtimestamp(path.stat().st_mtime, UTC)
        self._summaries[conversation_id] = summary_of(conversation, updated_at)
        return conversation

    def _place(self, path: Path) -> str:
        """The name of a file with its folder, which agents name after the project; empty if there is only one file."""
        return f"{path.resolve().parent.name}/{path.name}" if len(self._paths) > 1 else ""

    async def list(self, query: ListFilter) -> ConversationList:
        if not self._all_files_read.is_set():
            await asyncio.to_thread(self._all_files_read.wait, WAIT_SECONDS)
        return await asyncio.to_thread(self._list, query)

    def _list(self, query: ListFilter) -> ConversationList:
        summaries = list(self._summaries.values())
        models = sorted({summary.model for summary in summaries if summary.model})
        found = [summary for summary in summaries if query.matches(summary)]
        if query.q.strip():
            found = list(self._search(found, query.q))
        found.sort(key=SORTS.get(query.sort, SORTS["recent"]))
        page = found[query.after : query.after + PAGE_ROWS]
        following = query.after + PAGE_ROWS
        has_figures = self._has_all_figures or bool(query.q) or all(summary.cost is not None for summary in page)
        return ConversationList(
            items=page,
            total=len(found),
            next=following if following < len(found) else None,
            models=models,
            is_complete=self._all_files_read.is_set() and has_figures,
            is_reading=not self._all_files_read.is_set(),
            skipped=self._skipped[:20],
        )

    def _search(self, summaries: Sequence[ConversationSummary], query: str) -> Iterator[ConversationSummary]:
        words = query.casefold().split()
        for summary in summaries:
            conversation = self._load(summary.id)
            for position, message in enumerate(conversation.messages):
                text = full_text(message)
                casefolded = text.casefold()
                if all(word in casefolded for word in words):
                    offset = casefolded.find(words[0])
                    snippet = " ".join(text[max(0, offset - 60) : offset + 140].split())
                    yield replace(summary, snippet=snippet, snippet_position=position)
                    break
            else:
                if all(word in f"{summary.title} {summary.source}".casefold() for word in words):
                    yield summary

    async def state(self, conversation_id: str) -> str:
        if conversation_id not in self._locations:
            raise ConversationNotFound(conversation_id)
        return ""

    async def open(self, conversation_id: str) -> InspectedConversation:
        if conversation_id not in self._locations and not self._all_files_read.is_set():
            await asyncio.to_thread(self._all_files_read.wait)
        if conversation_id not in self._locations:
            raise ConversationNotFound(conversation_id)
        conversation = await asyncio.to_thread(self._load, conversation_id)
        if not conversation.replay_lock.locked():
            start_replay(conversation, self._policy)
        await asyncio.to_thread(conversation.finished.wait, WAIT_SECONDS)
        return conversation

    async def open_first(self, conversation_id: str) -> InspectedConversation:
        return await self.open(conversation_id)

    def _load(self, conversation_id: str) -> InspectedConversation:
        if conversation_id in self._kept:
            return self._kept[conversation_id]
        with self._lock:
            if conversation_id not in self._cache:
                location = self._locations[conversation_id]
                source = next(islice(read(Source(location.path), location.format), location.index, None))
                self._cache[conversation_id] = file_conversation(
                    conversation_id, source, self._policy, place=self._place(location.path)
                )
            self._cache.move_to_end(conversation_id)
            while len(self._cache) > MAX_OPEN:
                self._cache.popitem(last=False)
            return self._cache[conversation_id]

    async def branches(self, conversation_id: str) -> BranchTree:
        """Files do not say which conversation another one is copied from."""
        conversation = await self.open(conversation_id)
        return BranchTree([BranchNode(id=conversation_id, depth=0, shared=0, messages=len(conversation.messages))])

    async def undo_fold(self, conversation_id: str, fold_id: str) -> None:  # noqa: ARG002 - the source's interface
        raise RequestRefused(403, "Conversations of files cannot be changed.", "read_only")


def file_conversation(
    conversation_id: str, source: SourceConversation, policy: ReplayPolicy, *, place: str = ""
) -> InspectedConversation:
    """A conversation of a file, without requests. The policy's model replaces the one that the file names."""
    return new_conversation(
        conversation_id,
        source.messages,
        title=source.title,
        model=policy.model or source.model or next((item.model for item in source.items if item.model), None),
        folds=[InspectedFold(fold) for fold in source.folds],
        times=[item.at for item in source.items],
        models=policy.models,
        source=place,
    )
