"""A small MCP server for tests, over stdio."""

from __future__ import annotations

import os
import sys
import time

from mcp.server.mcpserver import Image, MCPServer

SERVER = MCPServer("small")


@SERVER.tool()
def add(one: int, other: int) -> str:
    """Add two numbers."""
    return str(one + other)


@SERVER.tool()
def fail() -> str:
    """Raise an exception."""
    raise ValueError("the moon is full")


@SERVER.tool()
def die() -> str:
    """Exit during a call."""
    os._exit(3)


@SERVER.tool()
def wait(seconds: float) -> str:
    """Sleep."""
    time.sleep(seconds)
    return "done"


@SERVER.tool()
def environment() -> str:
    """Return the environment of the server."""
    return "\n".join(f"{name}={value}" for name, value in os.environ.items())


@SERVER.tool()
def much(lines: int) -> str:
    """Return a long text."""
    return "\n".join(str(number) for number in range(lines))


@SERVER.tool()
def picture() -> Image:
    """Return an image."""
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")


@SERVER.tool(name="a name/with: odd characters " + "x" * 40)
def odd() -> str:
    """Has a name that no provider accepts."""
    return f"odd {os.getpid()}"


if __name__ == "__main__":
    print("started", file=sys.stderr, flush=True)
    SERVER.run()
