"""A small MCP server for the tests: started as a program, it answers over its pipes."""

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
    """Fail, as tools do."""
    raise ValueError("the moon is full")


@SERVER.tool()
def die() -> str:
    """End the server in the middle of a call."""
    os._exit(3)


@SERVER.tool()
def wait(seconds: float) -> str:
    """Take some time."""
    time.sleep(seconds)
    return "done"


@SERVER.tool()
def environment() -> str:
    """What the server was given."""
    return "\n".join(f"{name}={value}" for name, value in os.environ.items())


@SERVER.tool()
def much(lines: int) -> str:
    """A long answer."""
    return "\n".join(str(number) for number in range(lines))


@SERVER.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")


@SERVER.tool(name="a name/with: odd characters " + "x" * 40)
def odd() -> str:
    """A name that no provider would take."""
    return f"odd {os.getpid()}"


if __name__ == "__main__":
    print("started", file=sys.stderr, flush=True)
    SERVER.run()
