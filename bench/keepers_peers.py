"""The peers' stores, each as its own documentation has it used. Runs in the peers' environment, never in ours."""

import asyncio
import sqlite3
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from bench.keepers import server_durability, sqlite_durability
from bench.keeping import BATCH, Contender, Said

_PRAGMAS = ("journal_mode", "synchronous")


class AgentsSQLite:
    """openai-agents' SQLiteSession."""

    async def open(self, place: str) -> str:
        self._place = place
        self._sessions: dict[str, Any] = {}
        connection = self._session("first")._get_connection()  # noqa: SLF001 - what its own connections are set to
        return sqlite_durability(*(connection.execute(f"PRAGMA {one}").fetchone()[0] for one in _PRAGMAS))

    async def append(self, conversation: str, said: Said) -> None:
        await self.fill(conversation, [said])

    async def fill(self, conversation: str, many: Sequence[Said]) -> None:
        await self._session(conversation).add_items([{"role": role, "content": text} for role, text in many])

    async def last(self, conversation: str, count: int) -> int:
        return len(await self._session(conversation).get_items(limit=count))

    async def settle(self) -> None: ...

    async def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def _session(self, conversation: str) -> Any:
        from agents import SQLiteSession

        if conversation not in self._sessions:
            self._sessions[conversation] = SQLiteSession(conversation, self._place)
        return self._sessions[conversation]


class AgentsSQLAlchemy(AgentsSQLite):
    """openai-agents' SQLAlchemySession; all conversations share an engine."""

    async def open(self, place: str) -> str:
        from sqlalchemy.ext.asyncio import create_async_engine

        self._sessions = {}
        self._engine = create_async_engine(_engine_url(place))
        await self._session("first").get_items()
        return await _durability(self._engine, place)

    async def close(self) -> None:
        await self._engine.dispose()

    def _session(self, conversation: str) -> Any:
        from agents.extensions.memory import SQLAlchemySession

        if conversation not in self._sessions:
            self._sessions[conversation] = SQLAlchemySession(conversation, engine=self._engine, create_tables=True)
        return self._sessions[conversation]


class Adk:
    """google-adk's DatabaseSessionService."""

    async def open(self, place: str) -> str:
        from google.adk.sessions import DatabaseSessionService

        self._service = DatabaseSessionService(db_url=_engine_url(place))
        self._sessions: dict[str, Any] = {}
        await self._session("first")
        return await _durability(self._service.db_engine, place)

    async def append(self, conversation: str, said: Said) -> None:
        from google.adk.events import Event
        from google.genai.types import Content, Part

        role, text = said
        content = Content(role="user" if role == "user" else "model", parts=[Part(text=text)])
        await self._service.append_event(
            await self._session(conversation), Event(author=content.role, invocation_id="i", content=content)
        )

    async def fill(self, conversation: str, many: Sequence[Said]) -> None:
        """It has no way to add many: one is added, and copied in its own table."""
        from sqlalchemy import text

        await self.append(conversation, many[0])
        is_sqlite = self._service.db_engine.dialect.name == "sqlite"
        new_id = "lower(hex(randomblob(16)))" if is_sqlite else "gen_random_uuid()::text"
        copied = (
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < :count) "
            "INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data) "
            f"SELECT {new_id}, app_name, user_id, session_id, invocation_id, timestamp, event_data FROM n, "
            "(SELECT * FROM events WHERE session_id = :session ORDER BY timestamp DESC LIMIT 1) AS one"
        )
        async with self._service.db_engine.begin() as db:
            await db.execute(text(copied), {"count": len(many) - 1, "session": conversation})

    async def last(self, conversation: str, count: int) -> int:
        from google.adk.sessions.base_session_service import GetSessionConfig

        found = await self._service.get_session(
            app_name="bench", user_id="u", session_id=conversation, config=GetSessionConfig(num_recent_events=count)
        )
        return len(found.events) if found else 0

    async def settle(self) -> None: ...

    async def close(self) -> None:
        await self._service.close()

    async def _session(self, conversation: str) -> Any:
        if conversation not in self._sessions:
            self._sessions[conversation] = await self._service.create_session(
                app_name="bench", user_id="u", session_id=conversation
            )
        return self._sessions[conversation]


class LangGraph:
    """langgraph's savers: each step is a checkpoint, and a checkpoint holds the whole list of messages."""

    async def open(self, place: str) -> str:
        self._messages: dict[str, list[Any]] = {}
        self._configs: dict[str, Any] = {}
        self._saver = self._saver_of(place)
        self._saver.setup()
        if "://" in place:
            return await server_durability(place)
        return sqlite_durability(*(self._saver.conn.execute(f"PRAGMA {one}").fetchone()[0] for one in _PRAGMAS))

    def _saver_of(self, place: str) -> Any:
        if "://" not in place:
            from langgraph.checkpoint.sqlite import SqliteSaver

            return SqliteSaver(sqlite3.connect(place, check_same_thread=False))
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import ConnectionPool

        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        self._pool = ConnectionPool(place, kwargs=settings, min_size=1, max_size=10, open=True)
        return PostgresSaver(self._pool)

    async def append(self, conversation: str, said: Said) -> None:
        await self.fill(conversation, [said])

    async def fill(self, conversation: str, many: Sequence[Said]) -> None:
        from langchain_core.messages import AIMessage, HumanMessage

        kinds = {"user": HumanMessage, "assistant": AIMessage}
        kept = self._messages.setdefault(conversation, [])
        kept += [kinds[role](text) for role, text in many]
        if len(many) < BATCH or len(kept) >= 100_000:  # a step for each batch would write ten gigabytes
            await asyncio.to_thread(self._put, conversation)

    async def last(self, conversation: str, count: int) -> int:
        thread = {"configurable": {"thread_id": conversation, "checkpoint_ns": ""}}
        found = await asyncio.to_thread(self._saver.get_tuple, thread)
        return len(found.checkpoint["channel_values"]["messages"][-count:])

    async def settle(self) -> None: ...

    async def close(self) -> None:
        if hasattr(self, "_pool"):
            self._pool.close()
        else:
            self._saver.conn.close()

    def _put(self, conversation: str) -> None:
        from langgraph.checkpoint.base import empty_checkpoint

        step = len(self._messages[conversation])
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(self._messages[conversation])}
        checkpoint["channel_versions"] = {"messages": f"{step:032}.0"}
        config = self._configs.get(conversation) or {"configurable": {"thread_id": conversation, "checkpoint_ns": ""}}
        self._configs[conversation] = self._saver.put(
            config, checkpoint, {"source": "loop", "step": step}, checkpoint["channel_versions"]
        )


def _engine_url(place: str) -> str:
    return place.replace("postgresql://", "postgresql+asyncpg://") if "://" in place else f"sqlite+aiosqlite:///{place}"


async def _durability(engine: Any, place: str) -> str:
    if engine.dialect.name != "sqlite":
        return await server_durability(place)
    async with engine.connect() as db:
        values = [(await db.exec_driver_sql(f"PRAGMA {one}")).scalar() for one in _PRAGMAS]
    return sqlite_durability(*values)


def their_contenders(*, server: bool) -> list[Contender]:
    saver = "langgraph-checkpoint-postgres" if server else "langgraph-checkpoint-sqlite"
    found = [
        Contender(f"SQLAlchemySession (openai-agents {version('openai-agents')})", AgentsSQLAlchemy),
        Contender(f"DatabaseSessionService (google-adk {version('google-adk')})", Adk),
        Contender(f"{'PostgresSaver' if server else 'SqliteSaver'} (langgraph {version(saver)})", LangGraph),
    ]
    if not server:
        found.insert(0, Contender(f"SQLiteSession (openai-agents {version('openai-agents')})", AgentsSQLite))
    return found
