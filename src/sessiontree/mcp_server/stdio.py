"""The server's end of stdin and stdout. A message that the `mcp` package cannot parse is answered with an error.

The package only logs such a message, so a client would wait for its answer without end.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeGuard

from anyio import AsyncFile
from mcp.server import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from sessiontree.core.jsonio import parse_json, replace_surrogates

MAX_LINE = 4 << 20
"""Characters of the longest message. Decoding one takes several times its size, and no request needs as much."""


_LARGEST_ID = 1 << 63


class StdioServer(MCPServer[Any]):
    """A server that answers every request on stdin."""

    async def run_stdio_async(self) -> None:
        lines = _Lines(_LimitedLines(sys.stdin.buffer, encoding="utf-8", errors="replace"))
        async with stdio_server(stdin=lines) as (received, sent):
            lines.send = sent.send
            options = self._lowlevel_server.create_initialization_options()
            await self._lowlevel_server.run(received, sent, options)


class _LimitedLines(io.TextIOWrapper):
    """Lines of a stream; one that is too long is truncated to more than `MAX_LINE` characters, and not kept."""

    def readline(self, _size: int = -1, /) -> str:  # type: ignore[override]  # no limit of a caller
        line = super().readline(MAX_LINE + 1)
        if len(line) <= MAX_LINE:
            return line
        end = line
        while end and not end.endswith("\n"):
            end = super().readline(MAX_LINE)
        return line


class _Lines(AsyncFile[str]):
    """Lines of stdin that the package can parse. Lone surrogates are replaced; other lines are answered with errors."""

    send: Callable[[SessionMessage], Awaitable[None]]

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in super().__aiter__():
            if len(line) > MAX_LINE:
                await self._refuse(None, INVALID_REQUEST, f"a message has at most {MAX_LINE >> 20} MB")
                continue
            if _is_valid(line):
                yield line
                continue
            try:
                message = parse_json(line.encode())
            except ValueError:
                if line.strip():
                    await self._refuse(None, PARSE_ERROR, "the message is not valid JSON, or nested too deeply")
                continue
            repaired = replace_surrogates(json.dumps(message, ensure_ascii=False))
            if _is_valid(repaired):
                yield repaired
                continue
            fields = message if isinstance(message, dict) else {}
            if "result" not in fields and "error" not in fields:  # a response gets no response
                await self._refuse(fields.get("id"), INVALID_REQUEST, "the message is not a JSON-RPC request")

    async def _refuse(self, id: object, code: int, reason: str) -> None:
        answered = id if _is_id(id) else None
        error = JSONRPCError(jsonrpc="2.0", id=answered, error=ErrorData(code=code, message=reason))
        await self.send(SessionMessage(error))


def _is_valid(line: str) -> bool:
    """Whether the package answers a message. It takes a request whose id is null or a fraction for a notification."""
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return False
    if not isinstance(message, JSONRPCNotification) or '"id"' not in line:
        return True
    return "id" not in json.loads(line)


def _is_id(id: object) -> TypeGuard[int | str]:
    return isinstance(id, str) or (isinstance(id, int) and not isinstance(id, bool) and abs(id) <= _LARGEST_ID)
