"""Tools of MCP servers: programs chosen by the user, which are started with the agent and called over stdio.

Needs `pip install sessiontree[mcp]`. Servers are listed in `<home>/mcp.json`, in the common format:

    {"mcpServers": {"docs": {"command": "docs-server", "args": ["--stdio"], "env": {"KEY": "${DOCS_KEY}"}}}}

Only the user's own file is read: one in a project would run programs chosen by its author. A server gets a small
environment without secrets, plus `env`, where `${NAME}` is replaced from the user's environment. What a server declares
about its tools (such as read-only) is not trusted: each call may change anything, and needs approval like a command. A
server that dies produces error results, and is restarted by the next call.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from sessiontree.agent.process import OutputCollector
from sessiontree.agent.tools.base import Changes, Plan, ToolContext, ToolOutput, short
from sessiontree.core.jsonio import JsonObject, parse_json, render_json
from sessiontree.core.messages import Image
from sessiontree.errors import DamagedError, UsageError

if TYPE_CHECKING:
    import anyio
    import mcp
    from mcp.types import CallToolResult

FILE = "mcp.json"
_SEPARATOR = "__"
_MAX_NAME = 64
_STOP_TIMEOUT = 15.0
_UNKNOWN = "it is not known whether the call was carried out"
_variable = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class McpServer(Struct, frozen=True):
    """How to start a server."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    timeout: float = 60.0
    """Seconds a call may take."""
    start_timeout: float = 30.0


def read_servers(path: str, environment: Mapping[str, str] = os.environ) -> dict[str, McpServer]:
    """Read the list of servers; empty if the file does not exist."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return {}
    try:
        listed = parse_json(data)["mcpServers"]
        return {str(name): _server(name, fields, environment) for name, fields in listed.items()}
    except (ValueError, TypeError, LookupError, AttributeError, msgspec.ValidationError) as error:
        raise DamagedError(f"{path}: invalid: {error}") from None


def _server(name: str, fields: Any, environment: Mapping[str, str]) -> McpServer:
    if isinstance(fields, dict) and "command" not in fields:
        raise ValueError(f"`{name}` has no `command`; only servers started as programs are supported")
    server = msgspec.convert(fields, McpServer)
    env = {key: _variable.sub(lambda found: environment.get(found[1], ""), value) for key, value in server.env.items()}
    return msgspec.structs.replace(server, env=env)


def require_mcp() -> None:
    """Raise `UsageError` if the package is missing."""
    try:
        import mcp  # noqa: F401
    except ModuleNotFoundError:
        raise UsageError("MCP servers need an extra package: pip install 'sessiontree[mcp]'") from None


class McpTool:
    """A tool of a server."""

    changes: Changes = "anything"

    def __init__(self, connection: Connection, name: str, listed: mcp.Tool) -> None:
        self.connection, self._remote_name = connection, listed.name
        self.name = name
        self.description = (listed.description or listed.title or listed.name)[:4_000]
        self.schema: JsonObject = dict(listed.input_schema)

    def plan(self, arguments: JsonObject, context: ToolContext) -> Plan:  # noqa: ARG002 - what it does is not known
        title = f"{self._remote_name} of the MCP server {self.connection.name}: {short(arguments)}"
        return Plan(title, self.changes, command=f"{self._remote_name} {render_json(arguments).decode()}")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        try:
            result = await self.connection.call(self._remote_name, arguments)
        except McpError as error:
            return ToolOutput(f"{self.name}: {error}", is_error=True)
        return _as_output(result, context)


class McpError(UsageError):
    """A server did not start, died, timed out, or refused a call."""


class Connection:
    """A running server. It has its own task, because anyio requires pipes to be closed by the task that opened them."""

    def __init__(self, name: str, server: McpServer, cwd: str, log: str) -> None:
        self.name, self._server, self._cwd, self._log = name, server, cwd, log
        self._client: mcp.Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._scope: anyio.CancelScope | None = None
        self._starting = asyncio.Lock()

    @property
    def is_alive(self) -> bool:
        return self._client is not None and self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Start the server; `McpError` if it fails."""
        async with self._starting:
            if self.is_alive:
                return
            await self.stop()
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._serve(ready))
            try:
                await asyncio.wait_for(asyncio.shield(ready), self._server.start_timeout)
            except TimeoutError:
                await self.stop()
                raise McpError(f"the server did not answer within {self._server.start_timeout:g} s") from None

    async def stop(self) -> None:
        """Stop the server and wait until it has ended."""
        task, self._task, self._client = self._task, None, None
        if task is not None and not task.done():
            if self._scope is not None:  # cancelling the task itself would interrupt the shutdown of the program
                self._scope.cancel()
            await asyncio.wait([task], timeout=_STOP_TIMEOUT)
            task.cancel()

    async def _serve(self, ready: asyncio.Future[None]) -> None:
        import anyio
        import mcp

        parameters = mcp.StdioServerParameters(
            command=self._server.command,
            args=list(self._server.args),
            env=self._server.env,
            cwd=self._server.cwd or self._cwd,
        )
        try:
            with open(self._log, "a", encoding="utf-8", opener=_private) as log, anyio.CancelScope() as self._scope:
                async with mcp.Client(mcp.stdio_client(parameters, errlog=log)) as client:
                    self._client = client
                    ready.set_result(None)
                    await anyio.sleep_forever()
        except Exception as error:  # noqa: BLE001 - a third-party program may fail in any way; the error is passed to the caller
            if not ready.done():
                ready.set_exception(McpError(f"the server could not be started: {_describe(error)}; see {self._log}"))
        finally:
            self._client = None
            if not ready.done():
                ready.cancel()

    async def list_tools(self) -> list[mcp.Tool]:
        found: list[mcp.Tool] = []
        cursor: str | None = None
        while True:
            page = await self._request(lambda client, at=cursor: client.list_tools(cursor=at))
            found += page.tools
            cursor = page.next_cursor
            if not cursor or len(found) > 1_000:
                return found

    async def call(self, tool: str, arguments: JsonObject) -> CallToolResult:
        if not self.is_alive:
            await self.start()
        result: CallToolResult = await self._request(lambda client: client.call_tool(tool, arguments))
        return result

    async def _request(self, request: Any) -> Any:
        client, task = self._client, self._task
        if client is None or task is None:
            raise McpError("the server is not running")
        pending = asyncio.ensure_future(request(client))
        # `task` ends with the server: without it, a call to a server that died would wait until the timeout.
        try:
            done, _ = await asyncio.wait([pending, task], timeout=self._server.timeout, return_when="FIRST_COMPLETED")
        except asyncio.CancelledError:
            pending.cancel()
            raise
        if pending not in done:
            pending.cancel()
            await asyncio.wait([pending])
            if task in done:
                raise McpError(f"the server has ended; {_UNKNOWN}")
            raise McpError(f"the server did not answer within {self._server.timeout:g} s; {_UNKNOWN}")
        try:
            return pending.result()
        except Exception as error:  # noqa: BLE001 - as above
            if _is_closed(error):
                await self.stop()
                raise McpError(f"the server has ended; {_UNKNOWN}") from None
            raise McpError(_describe(error)) from None


class McpServers:
    """Running servers and their tools."""

    def __init__(self, tools: list[McpTool], problems: dict[str, str], connections: list[Connection]) -> None:
        self.tools = tools
        self.problems = problems
        """Servers that failed: name -> reason."""
        self.connections = connections

    def tools_of(self, connection: Connection) -> list[McpTool]:
        return [tool for tool in self.tools if tool.connection is connection]


@contextlib.asynccontextmanager
async def running_servers(servers: Mapping[str, McpServer], cwd: str, logs: str) -> AsyncIterator[McpServers]:
    """Start servers in parallel, and stop them at the end. A failure is listed in `problems`, not raised.

    The stderr of servers goes to files in the folder `logs`.
    """
    require_mcp()
    os.makedirs(logs, mode=0o700, exist_ok=True)
    connections = [
        Connection(name, server, cwd, os.path.join(logs, f"mcp-{_safe_name(name, 40)}.log"))
        for name, server in servers.items()
    ]
    started = McpServers([], {}, connections)
    try:
        listed = await asyncio.gather(*map(_list, connections))
        used: set[str] = set()
        for connection, (tools, problem) in zip(connections, listed, strict=True):
            if problem is not None:
                started.problems[connection.name] = problem
            for tool in tools:
                name = _tool_name(connection.name, tool.name, used)
                used.add(name)
                started.tools.append(McpTool(connection, name, tool))
        yield started
    finally:
        await asyncio.gather(*(connection.stop() for connection in connections))


async def _list(connection: Connection) -> tuple[list[mcp.Tool], str | None]:
    try:
        await connection.start()
        return await connection.list_tools(), None
    except McpError as error:
        return [], str(error)


def _tool_name(server: str, tool: str, used: set[str]) -> str:
    """A unique name that providers accept."""
    name = f"{_safe_name(server, 24)}{_SEPARATOR}{_safe_name(tool, 200)}"
    if len(name) > _MAX_NAME or name in used:
        mark = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
        name = f"{name[: _MAX_NAME - 9]}_{mark}"
    return name


def _safe_name(text: str, limit: int) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:limit] or "_"


def _as_output(result: CallToolResult, context: ToolContext) -> ToolOutput:
    texts: list[str] = []
    images: list[Image] = []
    for block in result.content:
        match block.type:
            case "text":
                texts.append(block.text)
            case "image":
                images.append(Image(block.data, block.mime_type))
            case "resource":
                held = getattr(block.resource, "text", None)
                texts.append(held if held is not None else f"[{block.resource.uri}: not text]")
            case "resource_link":
                texts.append(f"[{block.name}: {block.uri}]")
            case other:
                texts.append(f"[{other}: not supported]")
    if not texts and result.structured_content is not None:
        texts.append(render_json(result.structured_content).decode())
    collector = OutputCollector(context.masked(), context.outputs, context.call_id or "mcp", None)
    collector.add("\n".join(texts).encode("utf-8", "replace"))
    collector.end()
    collected = collector.result()
    note = f"\n\n[all of it is in {collected.spill}]" if collected.spill else ""
    text = collected.output or ("(images)" if images else "(no output)")
    return ToolOutput(text + note, bool(result.is_error), images=tuple(images))


def _is_closed(error: BaseException) -> bool:
    """Whether an error means that the connection is closed."""
    import anyio
    import mcp
    from mcp.types import CONNECTION_CLOSED

    if isinstance(error, mcp.MCPError):
        return bool(error.error.code == CONNECTION_CLOSED)
    return isinstance(
        error, anyio.ClosedResourceError | anyio.BrokenResourceError | anyio.EndOfStream | ConnectionError
    )


def _describe(error: BaseException) -> str:
    """The message of an error; of an exception group, the first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return short(str(error) or type(error).__name__, 300)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
