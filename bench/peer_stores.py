"""Adapters for the peers' stores, used as their documentation says. Runs in the peers' environment."""

import asyncio
import sqlite3
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from bench.store_adapters import server_durability, sqlite_durability
from bench.store_contest import BATCH, Contender, TextMessage

_PRAGMAS = ("journal_mode", "synchronous")


class AgentsSQLite:
    """openai-agents' SQLiteSession."""

    async def open(self, location: str) -> str:
        self._location = location
        self._sessions: dict[str, Any] = {}
        connection = self._session("first")._get_connection()  # noqa: SLF001 - to read the settings of its connections
        return sqlite_durability(*(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _PRAGMAS))

    async def append(self, conversation: str, message: TextMessage) -> None:
        await self.fill(conversation, [message])

    async def fill(self, conversation: str, messages: Sequence[TextMessage]) -> None:
        await self._session(conversation).add_items([{"role": role, "content": text} for role, text in messages])

    async def load_last(self, conversation: str, count: int) -> int:
        return len(await self._session(conversation).get_items(limit=count))

    async def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def _session(self, conversation: str) -> Any:
        from agents import SQLiteSession

        if conversation not in self._sessions:
            self._sessions[conversation] = SQLiteSession(conversation, self._location)
        return self._sessions[conversation]


class AgentsSQLAlchemy(AgentsSQLite):
    """openai-agents' SQLAlchemySession; all conversations share an engine."""

    async def open(self, location: str) -> str:
        from sqlalchemy.ext.asyncio import create_async_engine

        self._sessions = {}
        self._engine = create_async_engine(_engine_url(location))
        await self._session("first").get_items()
        return await _durability(self._engine, location)

    async def close(self) -> None:
        await self._engine.dispose()

    def _session(self, conversation: str) -> Any:
        from agents.extensions.memory import SQLAlchemySession

        if conversation not in self._sessions:
            self._sessions[conversation] = SQLAlchemySession(conversation, engine=self._engine, create_tables=True)
        return self._sessions[conversation]


class Adk:
    """google-adk's DatabaseSessionService."""

    async def open(self, location: str) -> str:
        from google.adk.sessions import DatabaseSessionService

        self._service = DatabaseSessionService(db_url=_engine_url(location))
        self._sessions: dict[str, Any] = {}
        await self._session("first")
        return await _durability(self._service.db_engine, location)

    async def append(self, conversation: str, message: TextMessage) -> None:
        from google.adk.events import Event
        from google.genai.types import Content, Part

        role, text = message
        content = Content(role="user" if role == "user" else "model", parts=[Part(text=text)])
        await self._service.append_event(
            await self._session(conversation), Event(author=content.role, invocation_id="i", content=content)
        )

    async def fill(self, conversation: str, messages: Sequence[TextMessage]) -> None:
        """Append one message and copy its row: the API has no way to append many."""
        from sqlalchemy import text

        await self.append(conversation, messages[0])
        is_sqlite = self._service.db_engine.dialect.name == "sqlite"
        new_id = "lower(hex(randomblob(16)))" if is_sqlite else "gen_random_uuid()::text"
        copy_rows = (
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < :count) "
            "INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data) "
            f"SELECT {new_id}, app_name, user_id, session_id, invocation_id, timestamp, event_data FROM n, "
            "(SELECT * FROM events WHERE session_id = :session ORDER BY timestamp DESC LIMIT 1) AS first_row"
        )
        async with self._service.db_engine.begin() as db:
            await db.execute(text(copy_rows), {"count": len(messages) - 1, "session": conversation})

    async def load_last(self, conversation: str, count: int) -> int:
        from google.adk.sessions.base_session_service import GetSessionConfig

        session = await self._service.get_session(
            app_name="bench", user_id="u", session_id=conversation, config=GetSessionConfig(num_recent_events=count)
        )
        return len(session.events) if session else 0

    async def close(self) -> None:
        await self._service.close()

    async def _session(self, conversation: str) -> Any:
        if conversation not in self._sessions:
            self._sessions[conversation] = await self._service.create_session(
                app_name="bench", user_id="u", session_id=conversation
            )
        return self._sessions[conversation]


class LangGraph:
    """langgraph's savers. Each step is a checkpoint with the whole list of messages."""

    async def open(self, location: str) -> str:
        self._messages: dict[str, list[Any]] = {}
        self._configs: dict[str, Any] = {}
        self._saver = self._open_saver(location)
        self._saver.setup()
        if "://" in location:
            return await server_durability(location)
        return sqlite_durability(*(self._saver.conn.execute(f"PRAGMA {name}").fetchone()[0] for name in _PRAGMAS))

    def _open_saver(self, location: str) -> Any:
        if "://" not in location:
            from langgraph.checkpoint.sqlite import SqliteSaver

            return SqliteSaver(sqlite3.connect(location, check_same_thread=False))
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import ConnectionPool

        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        self._pool = ConnectionPool(location, kwargs=settings, min_size=1, max_size=10, open=True)
        return PostgresSaver(self._pool)

    async def append(self, conversation: str, message: TextMessage) -> None:
        await self.fill(conversation, [message])

    async def fill(self, conversation: str, messages: Sequence[TextMessage]) -> None:
        from langchain_core.messages import AIMessage, HumanMessage

        kinds = {"user": HumanMessage, "assistant": AIMessage}
        stored = self._messages.setdefault(conversation, [])
        stored += [kinds[role](text) for role, text in messages]
        if len(messages) < BATCH or len(stored) >= 100_000:  # a checkpoint per batch would write ten gigabytes
            await asyncio.to_thread(self._put, conversation)

    async def load_last(self, conversation: str, count: int) -> int:
        thread = {"configurable": {"thread_id": conversation, "checkpoint_ns": ""}}
        saved = await asyncio.to_thread(self._saver.get_tuple, thread)
        return len(saved.checkpoint["channel_values"]["messages"][-count:])

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


def _engine_url(location: str) -> str:
    return (
        location.replace("postgresql://", "postgresql+asyncpg://")
        if "://" in location
        else f"sqlite+aiosqlite:///{location}"
    )


async def _durability(engine: Any, location: str) -> str:
    if engine.dialect.name != "sqlite":
        return await server_durability(location)
    async with engine.connect() as db:
        values = [(await db.exec_driver_sql(f"PRAGMA {name}")).scalar() for name in _PRAGMAS]
    return sqlite_durability(*values)


def their_contenders(*, server: bool) -> list[Contender]:
    saver = "langgraph-checkpoint-postgres" if server else "langgraph-checkpoint-sqlite"
    contenders = [
        Contender(f"SQLAlchemySession (openai-agents {version('openai-agents')})", AgentsSQLAlchemy),
        Contender(f"DatabaseSessionService (google-adk {version('google-adk')})", Adk),
        Contender(f"{'PostgresSaver' if server else 'SqliteSaver'} (langgraph {version(saver)})", LangGraph),
    ]
    if not server:
        contenders.insert(0, Contender(f"SQLiteSession (openai-agents {version('openai-agents')})", AgentsSQLite))
    return contenders
