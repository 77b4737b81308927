"""One sample file per format, each of the same conversation: a question, a tool call with its result, and an answer."""

import json
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

QUESTION, CITY, RESULT, ANSWER = "Where is order 17?", {"number": 17}, "packed", "Order 17 is packed."
ARGUMENTS = json.dumps(CITY)
TIME = "2026-03-01T10:00:00Z"
CHAT = [
    {"role": "user", "content": QUESTION},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "find_order", "arguments": ARGUMENTS}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": RESULT},
    {"role": "assistant", "content": ANSWER},
]
USE = {"type": "tool_use", "id": "call_1", "name": "find_order", "input": CITY}
ANTHROPIC = [
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": [USE]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": RESULT}]},
    {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
]
ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
    {"type": "function_call", "call_id": "call_1", "name": "find_order", "arguments": ARGUMENTS},
    {"type": "function_call_output", "call_id": "call_1", "output": RESULT},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]},
]
CONTENTS = [
    {"role": "user", "parts": [{"text": QUESTION}]},
    {"role": "model", "parts": [{"functionCall": {"id": "call_1", "name": "find_order", "args": CITY}}]},
    {
        "role": "user",
        "parts": [{"functionResponse": {"id": "call_1", "name": "find_order", "response": {"output": RESULT}}}],
    },
    {"role": "model", "parts": [{"text": ANSWER}]},
]
BEDROCK = [
    {"role": "user", "content": [{"text": QUESTION}]},
    {"role": "assistant", "content": [{"toolUse": {"toolUseId": "call_1", "name": "find_order", "input": CITY}}]},
    {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "call_1", "content": [{"text": RESULT}], "status": "success"}}],
    },
    {"role": "assistant", "content": [{"text": ANSWER}]},
]
VERCEL = [
    {"id": "m1", "role": "user", "parts": [{"type": "text", "text": QUESTION}]},
    {
        "id": "m2",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {
                "type": "tool-find_order",
                "toolCallId": "call_1",
                "state": "output-available",
                "input": CITY,
                "output": RESULT,
            },
            {"type": "step-start"},
            {"type": "text", "text": ANSWER, "state": "done"},
        ],
    },
]


def _claude_code() -> list[dict[str, Any]]:
    def line(number: int, kind: str, message: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        parent = None if number == 1 else f"u{number - 1}"
        return {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/app",
            "sessionId": "s-1",
            "version": "2.1.0",
            "type": kind,
            "message": message,
            "uuid": f"u{number}",
            "timestamp": TIME,
            **more,
        }

    usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0, "output_tokens": 3}
    answer = {"type": "message", "role": "assistant", "model": "claude-opus-4-6", "stop_reason": None, "usage": usage}
    return [
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}, "isSnapshotUpdate": False},
        line(1, "user", {"role": "user", "content": QUESTION}),
        line(
            2,
            "assistant",
            {**answer, "id": "msg_1", "content": [{"type": "thinking", "thinking": "look", "signature": "s"}]},
        ),
        line(3, "assistant", {**answer, "id": "msg_1", "content": [USE]}),
        line(4, "user", ANTHROPIC[2], toolUseResult={"stdout": RESULT}),
        line(5, "assistant", {**answer, "id": "msg_2", "content": [{"type": "text", "text": ANSWER}]}),
        {"type": "summary", "summary": "Find an order", "leafUuid": "u5"},
    ]


def _codex() -> list[dict[str, Any]]:
    def line(kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        return {"timestamp": TIME, "type": kind, "payload": payload}

    counts = {
        "input_tokens": 10,
        "cached_input_tokens": 5,
        "output_tokens": 3,
        "reasoning_output_tokens": 1,
        "total_tokens": 13,
    }
    return [
        line(
            "session_meta",
            {"id": "s-1", "timestamp": TIME, "cwd": "/app", "originator": "codex_exec", "cli_version": "0.166.0"},
        ),
        line("world_state", {"full": True, "state": {}}),
        line("turn_context", {"cwd": "/app", "model": "gpt-5"}),
        *(line("response_item", item) for item in ITEMS),
        line("token_usage_record", {"response_id": "r1", "usage": counts}),
        line("event_msg", {"type": "token_count", "info": {"total_token_usage": counts, "last_token_usage": counts}}),
    ]


GEMINI_CLI = {
    "sessionId": "s-1",
    "projectHash": "abc",
    "startTime": TIME,
    "lastUpdated": TIME,
    "messages": [
        {"id": "1", "timestamp": TIME, "type": "user", "content": QUESTION},
        {
            "id": "2",
            "timestamp": TIME,
            "type": "gemini",
            "content": "",
            "model": "gemini-2.5-pro",
            "tokens": {"input": 10, "output": 3, "cached": 5, "thoughts": 1, "tool": 0, "total": 14},
            "toolCalls": [
                {
                    "id": "call_1",
                    "name": "find_order",
                    "args": CITY,
                    "status": "success",
                    "timestamp": TIME,
                    "result": [
                        {"functionResponse": {"id": "call_1", "name": "find_order", "response": {"output": RESULT}}}
                    ],
                }
            ],
        },
        {"id": "3", "timestamp": TIME, "type": "gemini", "content": ANSWER, "model": "gemini-2.5-pro"},
        {"id": "4", "timestamp": TIME, "type": "info", "content": "saved"},
    ],
}
OPENCODE = {
    "info": {"id": "ses_1", "title": "Find an order", "time": {"created": 1772359200000}},
    "messages": [
        {
            "info": {"id": "m1", "role": "user", "time": {"created": 1772359200000}},
            "parts": [{"type": "text", "text": QUESTION}],
        },
        {
            "info": {
                "id": "m2",
                "role": "assistant",
                "modelID": "claude-opus-4-6",
                "time": {"created": 1772359201000},
                "tokens": {"input": 10, "output": 3, "reasoning": 0, "cache": {"read": 5, "write": 0}},
            },
            "parts": [
                {"type": "step-start"},
                {
                    "type": "tool",
                    "callID": "call_1",
                    "tool": "find_order",
                    "state": {"status": "completed", "input": CITY, "output": RESULT, "title": "order"},
                },
                {"type": "step-finish"},
                {"type": "step-start"},
                {"type": "text", "text": ANSWER},
            ],
        },
    ],
}
AIDER = f"""
# aider chat started at 2026-03-01 10:00:00

> Aider v0.80.0
> Model: gpt-5

#### {QUESTION}

{ANSWER}

> Tokens: 10 sent, 3 received.
"""
MINI_SWE_AGENT = {
    "info": {
        "exit_status": "Submitted",
        "model_stats": {"instance_cost": 0.1, "api_calls": 2},
        "config": {"model": {"model_name": "gpt-5"}},
    },
    "messages": CHAT,
    "trajectory_format": "mini-swe-agent-1.1",
    "instance_id": "task-1",
}
OPENHANDS = [
    {
        "id": 0,
        "timestamp": TIME,
        "source": "user",
        "action": "message",
        "args": {"content": QUESTION},
        "message": QUESTION,
    },
    {
        "id": 1,
        "timestamp": TIME,
        "source": "agent",
        "action": "run",
        "args": {**CITY, "thought": ""},
        "tool_call_metadata": {"function_name": "find_order", "tool_call_id": "call_1", "model_response": {"id": "r1"}},
    },
    {
        "id": 2,
        "timestamp": TIME,
        "source": "agent",
        "observation": "run",
        "content": RESULT,
        "cause": 1,
        "tool_call_metadata": {"function_name": "find_order", "tool_call_id": "call_1"},
    },
    {"id": 3, "timestamp": TIME, "source": "agent", "action": "message", "args": {"content": ANSWER}},
]
OPEN_WEBUI = [
    {
        "id": "chat-1",
        "title": "Find an order",
        "created_at": 1772359200,
        "chat": {
            "models": ["gpt-5"],
            "history": {
                "currentId": "b",
                "messages": {
                    "a": {
                        "id": "a",
                        "parentId": None,
                        "childrenIds": ["b", "c"],
                        "role": "user",
                        "content": QUESTION,
                        "timestamp": 1772359200,
                    },
                    "c": {
                        "id": "c",
                        "parentId": "a",
                        "childrenIds": [],
                        "role": "assistant",
                        "content": "I do not know.",
                        "model": "gpt-5",
                    },
                    "b": {
                        "id": "b",
                        "parentId": "a",
                        "childrenIds": [],
                        "role": "assistant",
                        "content": ANSWER,
                        "model": "gpt-5",
                    },
                },
            },
        },
    }
]


def _chatgpt() -> list[dict[str, Any]]:
    def node(name: str, parent: str | None, role: str, text: str, **more: Any) -> dict[str, Any]:
        author = {"role": role, "name": "find_order" if role == "tool" else None}
        message = {
            "id": name,
            "author": author,
            "content": {"content_type": "text", "parts": [text]},
            "create_time": 1772359200.5,
            "recipient": "all",
            "metadata": {"model_slug": "gpt-5"},
            **more,
        }
        return {"id": name, "parent": parent, "children": [], "message": message}

    nodes = [
        {"id": "root", "parent": None, "children": ["a"], "message": None},
        node("a", "root", "user", QUESTION),
        node("b", "a", "assistant", ARGUMENTS, recipient="find_order"),
        node("c", "b", "tool", RESULT),
        node("old", "c", "assistant", "I do not know."),
        node("d", "c", "assistant", ANSWER),
    ]
    conversation = {
        "title": "Find an order",
        "create_time": 1772359200.5,
        "current_node": "d",
        "conversation_id": "chat-1",
    }
    return [{**conversation, "mapping": {item["id"]: item for item in nodes}}]


CLAUDE_AI = [
    {
        "uuid": "chat-1",
        "name": "Find an order",
        "created_at": TIME,
        "chat_messages": [
            {
                "uuid": "1",
                "text": QUESTION,
                "content": [{"type": "text", "text": QUESTION}],
                "sender": "human",
                "created_at": TIME,
            },
            {
                "uuid": "2",
                "text": ANSWER,
                "sender": "assistant",
                "created_at": TIME,
                "content": [
                    {"type": "tool_use", "name": "find_order", "input": CITY},
                    {"type": "tool_result", "name": "find_order", "content": [{"type": "text", "text": RESULT}]},
                    {"type": "text", "text": ANSWER},
                ],
            },
        ],
    }
]
SHAREGPT = [
    {
        "id": "chat-1",
        "conversations": [
            {"from": "human", "value": QUESTION},
            {"from": "function_call", "value": json.dumps({"name": "find_order", "arguments": CITY})},
            {"from": "observation", "value": RESULT},
            {"from": "gpt", "value": ANSWER},
        ],
    }
]
LANGCHAIN = [
    {"type": "human", "data": {"content": QUESTION, "type": "human"}},
    {
        "type": "ai",
        "data": {
            "content": "",
            "type": "ai",
            "tool_calls": [{"name": "find_order", "args": CITY, "id": "call_1", "type": "tool_call"}],
        },
    },
    {"type": "tool", "data": {"content": RESULT, "type": "tool", "tool_call_id": "call_1", "status": "success"}},
    {
        "type": "ai",
        "data": {
            "content": ANSWER,
            "type": "ai",
            "response_metadata": {"model_name": "gpt-5"},
            "usage_metadata": {"input_tokens": 10},
        },
    },
]
_CLASSES = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}
LANGCHAIN_DUMPD = [
    {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", _CLASSES[item["type"]]],
        "kwargs": item["data"],
    }
    for item in LANGCHAIN
]
PYDANTIC_AI = [
    {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": QUESTION, "timestamp": TIME}]},
    {
        "kind": "response",
        "model_name": "gpt-5",
        "timestamp": TIME,
        "usage": {"input_tokens": 10, "output_tokens": 3},
        "parts": [{"part_kind": "tool-call", "tool_name": "find_order", "args": CITY, "tool_call_id": "call_1"}],
    },
    {
        "kind": "request",
        "parts": [{"part_kind": "tool-return", "tool_name": "find_order", "content": RESULT, "tool_call_id": "call_1"}],
    },
    {"kind": "response", "model_name": "gpt-5", "timestamp": TIME, "parts": [{"part_kind": "text", "content": ANSWER}]},
]
ADK = {
    "id": "s-1",
    "appName": "orders",
    "userId": "ada",
    "events": [
        {"author": "user", "content": CONTENTS[0], "timestamp": 1772359200.0},
        {
            "author": "agent",
            "content": CONTENTS[1],
            "timestamp": 1772359201.0,
            "usageMetadata": {"promptTokenCount": 10},
        },
        {"author": "agent", "content": CONTENTS[2], "timestamp": 1772359202.0},
        {"author": "agent", "content": CONTENTS[3], "timestamp": 1772359203.0},
    ],
}


def _export() -> bytes:
    import asyncio

    from minutebook import AsyncConversation

    async def lines() -> list[str]:
        async with AsyncConversation("order-17") as chat:
            await chat.append(CHAT)
            return [line async for line in chat.store.export("order-17")]

    return "\n".join(asyncio.run(lines())).encode()


def _database(statements: str, rows: Callable[[sqlite3.Connection], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sample.db"
        database = sqlite3.connect(path)
        database.executescript(statements)
        rows(database)
        database.commit()
        database.close()
        return path.read_bytes()


def _openai_agents() -> bytes:
    def rows(database: sqlite3.Connection) -> None:
        database.execute("INSERT INTO agent_sessions VALUES ('s-1', '2026-03-01 10:00:00', '2026-03-01 10:00:00')")
        data = [("s-1", json.dumps(item), "2026-03-01 10:00:00") for item in ITEMS]
        database.executemany("INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)", data)

    return _database(
        "CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at TIMESTAMP, updated_at TIMESTAMP);"
        "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TIMESTAMP);",
        rows,
    )


def _llm() -> bytes:
    def rows(database: sqlite3.Connection) -> None:
        database.execute("INSERT INTO conversations VALUES ('c-1', 'Find an order', 'gpt-5')")
        database.execute(
            "INSERT INTO responses VALUES ('r1', 'gpt-5', ?, NULL, '', 'c-1', '2026-03-01T10:00:00', 10, 3)",
            (QUESTION,),
        )
        database.execute(
            "INSERT INTO responses VALUES ('r2', 'gpt-5', '', NULL, ?, 'c-1', '2026-03-01T10:00:01', 13, 4)", (ANSWER,)
        )
        database.execute("INSERT INTO tool_calls VALUES (1, 'r1', 1, 'find_order', ?, 'call_1')", (ARGUMENTS,))
        database.execute("INSERT INTO tool_results VALUES (1, 'r2', 1, 'find_order', ?, 'call_1')", (RESULT,))

    return _database(
        "CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);"
        "CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, response TEXT, conversation_id TEXT,"
        " datetime_utc TEXT, input_tokens INTEGER, output_tokens INTEGER);"
        "CREATE TABLE tool_calls (id INTEGER PRIMARY KEY, response_id TEXT, tool_id INTEGER, name TEXT, arguments TEXT, tool_call_id TEXT);"
        "CREATE TABLE tool_results (id INTEGER PRIMARY KEY, response_id TEXT, tool_id INTEGER, name TEXT, output TEXT, tool_call_id TEXT);",
        rows,
    )


def _llm_threads() -> bytes:
    def rows(database: sqlite3.Connection) -> None:
        messages = [("m1", None, "user"), ("m2", "m1", "assistant"), ("m3", "m2", "tool"), ("m4", "m3", "assistant")]
        call_of = {"name": "find_order", "tool_call_id": "call_1"}
        parts = [
            ("m1", "text", QUESTION, None),
            ("m2", "tool_call", None, json.dumps({**call_of, "arguments": CITY})),
            ("m3", "tool_result", None, json.dumps({**call_of, "output": RESULT})),
            ("m4", "text", ANSWER, None),
        ]
        turns = [
            ("t1", "m1", "m2", 10, 3, "2026-03-01T10:00:00+00:00"),
            ("t2", "m3", "m4", 13, 4, "2026-03-01T10:00:01"),
        ]
        database.execute("INSERT INTO threads VALUES ('c-1', 'Find an order', 'm4', NULL)")
        database.executemany("INSERT INTO messages VALUES (?, ?, ?)", messages)
        database.executemany(
            "INSERT INTO parts (message_hash, position, type, text, payload) VALUES (?, 0, ?, ?, ?)", parts
        )
        database.executemany("INSERT INTO turns VALUES (?, 'c-1', ?, ?, 'gpt-5', ?, ?, '{}', ?)", turns)

    return _database(
        "CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);"
        "CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, response TEXT, reasoning TEXT,"
        " conversation_id TEXT, datetime_utc TEXT, input_tokens INTEGER, output_tokens INTEGER);"
        "CREATE TABLE fragments (id INTEGER PRIMARY KEY, content TEXT);"
        "CREATE TABLE messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT);"
        "CREATE TABLE parts (id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, text TEXT, payload TEXT);"
        "CREATE TABLE threads (id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT);"
        "CREATE TABLE turns (id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT, tip_message_hash TEXT, model TEXT,"
        " input_tokens INTEGER, output_tokens INTEGER, token_details TEXT, datetime_utc TEXT);",
        rows,
    )


def _opencode_database() -> bytes:
    def rows(database: sqlite3.Connection) -> None:
        database.execute("INSERT INTO session VALUES ('ses_1', 'Find an order', 1772359200000)")
        for number, message in enumerate(OPENCODE["messages"]):
            info, message_id = message["info"], f"m{number}"  # type: ignore[index]
            database.execute(
                "INSERT INTO message VALUES (?, 'ses_1', ?, ?)", (message_id, info["time"]["created"], json.dumps(info))
            )
            for part_number, part in enumerate(message["parts"]):  # type: ignore[index]
                row = (f"p{number}{part_number}", message_id, json.dumps(part))
                database.execute("INSERT INTO part VALUES (?, ?, ?)", row)

    return _database(
        "CREATE TABLE session (id TEXT PRIMARY KEY, title TEXT, time_created INTEGER);"
        "CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);"
        "CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, data TEXT);",
        rows,
    )


def _adk_database() -> bytes:
    def rows(database: sqlite3.Connection) -> None:
        database.execute("INSERT INTO sessions VALUES ('orders', 'ada', 's-1', '2026-03-01 10:00:00')")
        data = [
            (
                f"e{index}",
                "orders",
                "ada",
                "s-1",
                event["author"],
                f"2026-03-01 10:00:0{index}",
                json.dumps(event["content"]),
            )
            for index, event in enumerate(ADK["events"])  # type: ignore[arg-type, var-annotated]
        ]
        database.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", data)

    return _database(
        "CREATE TABLE sessions (app_name TEXT, user_id TEXT, id TEXT, update_time TIMESTAMP);"
        "CREATE TABLE events (id TEXT, app_name TEXT, user_id TEXT, session_id TEXT, author TEXT, timestamp TIMESTAMP, content TEXT);",
        rows,
    )


def _our_database() -> bytes:
    from minutebook.store import open_store
    from minutebook.store.loop_thread import run_sync

    with tempfile.TemporaryDirectory() as folder:
        store = open_store(str(Path(folder) / "chat.db"))
        run_sync(store.import_(_export().decode().splitlines()))
        run_sync(store.close())
        return (Path(folder) / "chat.db").read_bytes()


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def as_lines(values: Any) -> bytes:
    return "".join(f"{json.dumps(value)}\n" for value in values).encode()


SAMPLES: dict[str, tuple[str, bytes]] = {
    "chat messages": ("openai-chat", as_json(CHAT)),
    "chat messages, a line each": ("openai-chat", as_lines(CHAT)),
    "chat requests, a line each": ("openai-chat", as_lines([{"model": "gpt-5", "messages": CHAT}] * 3)),
    "chat batch": (
        "openai-chat",
        as_lines(
            [
                {
                    "custom_id": "1",
                    "method": "POST",
                    "url": "/v1/chat/completions",
                    "body": {"model": "gpt-5", "messages": CHAT},
                }
            ]
        ),
    ),
    "anthropic messages": ("anthropic", as_json(ANTHROPIC)),
    "anthropic request": (
        "anthropic",
        as_json({"model": "claude-opus-4-6", "max_tokens": 100, "system": "Be brief.", "messages": ANTHROPIC}),
    ),
    "anthropic messages, a line each": ("anthropic", as_lines(ANTHROPIC)),
    "anthropic requests, a line each": (
        "anthropic",
        as_lines([{"model": "claude-opus-4-6", "max_tokens": 100, "messages": ANTHROPIC}] * 3),
    ),
    "responses items, a line each": ("openai-responses", as_lines(ITEMS)),
    "responses requests, a line each": ("openai-responses", as_lines([{"model": "gpt-5", "input": ITEMS}] * 3)),
    "gemini contents, a line each": ("gemini", as_lines(CONTENTS)),
    "gemini requests, a line each": ("gemini", as_lines([{"contents": CONTENTS}] * 3)),
    "responses items": ("openai-responses", as_json(ITEMS)),
    "responses request": ("openai-responses", as_json({"model": "gpt-5", "instructions": "Be brief.", "input": ITEMS})),
    "gemini contents": ("gemini", as_json(CONTENTS)),
    "gemini request": (
        "gemini",
        as_json({"systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": CONTENTS}),
    ),
    "bedrock request": (
        "bedrock",
        as_json({"modelId": "anthropic.claude", "system": [{"text": "Be brief."}], "messages": BEDROCK}),
    ),
    "vercel messages": ("vercel-ui", as_json(VERCEL)),
    "claude code session": ("claude-code", as_lines(_claude_code())),
    "codex session": ("codex", as_lines(_codex())),
    "gemini cli session": ("gemini-cli", as_json(GEMINI_CLI)),
    "opencode export": ("opencode", as_json(OPENCODE)),
    "aider history": ("aider", AIDER.encode()),
    "mini-swe-agent trajectory": ("swe-agent", as_json(MINI_SWE_AGENT)),
    "swe-agent trajectory": (
        "swe-agent",
        as_json({"environment": "task-1", "trajectory": [], "history": CHAT, "info": {}}),
    ),
    "openhands events": ("openhands", as_json(OPENHANDS)),
    "open webui export": ("open-webui", as_json(OPEN_WEBUI)),
    "chatgpt export": ("chatgpt", as_json(_chatgpt())),
    "claude.ai export": ("claude-ai", as_json(CLAUDE_AI)),
    "sharegpt data": ("sharegpt", as_json(SHAREGPT)),
    "langchain messages": ("langchain", as_json(LANGCHAIN)),
    "langchain dump": ("langchain", as_json(LANGCHAIN_DUMPD)),
    "pydantic-ai messages": ("pydantic-ai", as_json(PYDANTIC_AI)),
    "adk session": ("adk", as_json(ADK)),
    "adk database": ("adk-db", _adk_database()),
    "openai-agents database": ("openai-agents", _openai_agents()),
    "llm database": ("llm", _llm()),
    "llm database with threads": ("llm", _llm_threads()),
    "opencode database": ("opencode-db", _opencode_database()),
    "our export": ("minutebook", _export()),
    "our database": ("minutebook-db", _our_database()),
}
"""Description → name of the format, content of the file."""
WITHOUT_TOOLS = {"aider history", "open webui export"}
"""Formats that have no tool calls."""
