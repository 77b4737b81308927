"""A real MCP server, made with the official SDK: `python toolserver.py` on stdio, `python toolserver.py http` on loopback.

With `only-whoami` it has that tool alone. With `mortal` it also has tools that end its process.

Over HTTP it prints its port, and answers 401 to whoever does not bring what TOOLSERVER_AUTH says.
"""

import os
import signal
import socket
import sys

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tools")


@server.tool()
def search(query: str, limit: int = 3) -> str:
    """Search the tickets."""
    return f"{limit} tickets about {query}"


@server.tool()
def update(ticket: int) -> dict[str, int]:
    """Close a ticket."""
    return {"closed": ticket}


@server.tool()
def whoami() -> str:
    """Say which key the server was given."""
    return os.environ.get("NOTES_KEY", "nobody")


@server.tool()
def explode() -> str:
    """Fail."""
    raise ToolError("the disk is full")


def pid() -> int:
    """The id of the process."""
    return os.getpid()


def die() -> str:
    """End the process during the call."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "not reached"


def guarded(app):
    wanted = os.environ["TOOLSERVER_AUTH"].encode()

    async def call(scope, receive, send):
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != wanted:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    return call


def main():
    if "only-whoami" in sys.argv:
        for name in ("search", "update", "explode"):
            server.remove_tool(name)
    if "mortal" in sys.argv:
        for tool in (pid, die):
            server.tool()(tool)
    if "http" not in sys.argv:
        server.run()
        return
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)  # noqa: T201 - whoever started it reads this
        config = uvicorn.Config(guarded(server.streamable_http_app()), log_level="error", lifespan="on")
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
