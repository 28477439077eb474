"""JSON-RPC 2.0 over lines: requests and notifications in both directions, each message one line of JSON.

A reader thread and a writer thread do the I/O, so that a client that neither reads nor writes blocks no event loop and
no exit. An invalid message is answered with an error; only the end of the client's output ends the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from sessiontree.core.jsonio import JsonObject, parse_json, render_json
from sessiontree.errors import AmbiguousError, NotFoundError, SessionTreeError, UsageError
from sessiontree.views.text import clean, one_line

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
CANCELLED, NOT_FOUND = -32800, -32002
"""Error codes that the protocol adds: a request was cancelled; a session or another resource does not exist."""

MAX_LINE = 64 << 20
"""Bytes of the longest message that is read. An image has at most 5 MB, and becomes a third longer."""
_READ_AT_ONCE = 1 << 16
_MAX_WAITING = 1 << 20
"""How many bytes may wait for the client before the sender has to wait."""

Log: TypeAlias = Callable[[str], None]
RequestId: TypeAlias = int | str | None


class RpcError(Exception):
    """An error response: sent to the client, or received from it."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    def to_json(self) -> JsonObject:
        fields: JsonObject = {"code": self.code, "message": self.message}
        return fields if self.data is None else {**fields, "data": self.data}


class ConnectionClosedError(Exception):
    """The client has ended, or closed its end of the connection."""


class Methods(Protocol):
    """The methods that a client can call."""

    async def call(self, method: str, params: Any) -> Any:
        """Answer a request; `RpcError` and `SessionTreeError` become error responses."""

    async def notify(self, method: str, params: Any) -> None: ...


class LineWriter:
    """Writes lines to a file descriptor in a thread, in the order in which they were sent."""

    def __init__(self, file: int, on_failure: Callable[[], None]) -> None:
        """`on_failure` is called in the event loop when the client no longer reads."""
        self._file, self._on_failure = file, on_failure
        self._loop = asyncio.get_running_loop()
        self._lines: deque[bytes] = deque()
        self._waiting = 0
        self._changed = threading.Condition()
        self._is_ending = self._has_failed = False
        self._drained = asyncio.Event()
        self._drained.set()
        self._thread = threading.Thread(target=self._run, name="acp writer", daemon=True)
        self._thread.start()

    async def send(self, line: bytes) -> None:
        with self._changed:
            if self._has_failed or self._is_ending:
                raise ConnectionClosedError
            self._lines.append(line)
            self._waiting += len(line)
            self._changed.notify()
            is_full = self._waiting > _MAX_WAITING
            if is_full:
                self._drained.clear()
        if is_full:
            await self._drained.wait()

    def end(self, seconds: float) -> None:
        """Write the lines that were sent, for at most this long, and end the thread."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._is_ending:
                    self._changed.wait()
                if not self._lines:
                    return
                lines = b"".join(self._lines)
                self._lines.clear()
            try:
                written = memoryview(lines)
                while written:
                    written = written[os.write(self._file, written) :]
            except OSError:  # the client has ended
                with self._changed:
                    self._has_failed = True
                    self._lines.clear()
                self._tell_loop(self._on_failure)
                self._tell_loop(self._drained.set)
                return
            with self._changed:
                self._waiting -= len(lines)
                is_low = self._waiting <= _MAX_WAITING
            if is_low:
                self._tell_loop(self._drained.set)

    def _tell_loop(self, function: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)


class Connection:
    """One client."""

    def __init__(self, reader: int, writer: int, log: Log) -> None:
        """`reader` and `writer` are file descriptors."""
        self._reader, self._log = reader, log
        self._closed = asyncio.Event()
        self._writer = LineWriter(writer, self._closed.set)
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._answered: dict[int, asyncio.Future[Any]] = {}
        self._requests: dict[RequestId, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_id = 0

    # To the client

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._send({"method": method, "params": params})

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """The result of a request to the client. If the caller is cancelled, so is the request."""
        self._last_id += 1
        id = self._last_id
        future = self._answered[id] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": id, "method": method, "params": params})
            return await future
        except asyncio.CancelledError:
            self._spawn(self.notify("$/cancel_request", {"requestId": id}))
            raise
        finally:
            del self._answered[id]

    async def _send(self, fields: JsonObject) -> None:
        await self._writer.send(render_json({"jsonrpc": "2.0", **fields}) + b"\n")

    # From the client

    async def serve(self, methods: Methods) -> None:
        """Answer until the client closes its output, or ends."""
        threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), name="acp reader", daemon=True).start()
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            while True:
                line = asyncio.ensure_future(self._lines.get())
                await asyncio.wait((line, closed), return_when=asyncio.FIRST_COMPLETED)
                if not line.done() or (data := line.result()) is None:
                    line.cancel()
                    return
                self._receive(data, methods)
        finally:
            closed.cancel()
            for future in self._answered.values():
                if not future.done():
                    future.set_exception(ConnectionClosedError())

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read lines until the end of the file. Runs in a thread."""
        # Not with a file object: its lock is held while it waits, and the interpreter could not exit.
        line = bytearray()
        while True:
            try:
                data = os.read(self._reader, _READ_AT_ONCE)
            except OSError:
                data = b""
            *complete, rest = data.split(b"\n")
            for part in complete:
                self._pass_on(loop, line + part)
                line.clear()
            line += rest[: MAX_LINE + 1 - len(line)]
            if not data:
                self._pass_on(loop, line)
                self._pass_on(loop, None)
                return

    def _pass_on(self, loop: asyncio.AbstractEventLoop, line: bytearray | None) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop was closed
            loop.call_soon_threadsafe(self._lines.put_nowait, None if line is None else bytes(line))

    def _receive(self, line: bytes, methods: Methods) -> None:
        if not line.strip():
            return
        if len(line) > MAX_LINE:
            self._refuse(None, RpcError(INVALID_REQUEST, f"a message has at most {MAX_LINE >> 20} MB"))
            return
        try:
            message = parse_json(line)
        except (ValueError, RecursionError) as error:
            self._refuse(None, RpcError(PARSE_ERROR, f"not a line of JSON: {one_line(str(error))}"))
            return
        if not isinstance(message, dict):
            self._refuse(None, RpcError(INVALID_REQUEST, "not a JSON-RPC object; batches are not part of the protocol"))
            return
        id, method = message.get("id"), message.get("method")
        if isinstance(method, str) and "id" not in message:
            self._spawn(self._take_notification(methods, method, message.get("params")))
        elif isinstance(method, str) and (id is None or (isinstance(id, int | str) and not isinstance(id, bool))):
            task = self._spawn(self._answer(methods, id, method, message.get("params")))
            self._requests[id] = task
        elif "result" in message or "error" in message:
            self._take_response(id, message)
        else:
            known = id if isinstance(id, int | str) else None
            self._refuse(known, RpcError(INVALID_REQUEST, "not a request: `method` is missing or not a string"))

    def _take_response(self, id: Any, message: JsonObject) -> None:
        future = self._answered.get(id) if isinstance(id, int) else None
        if future is None or future.done():
            return  # the request was withdrawn
        error = message.get("error")
        if error is None:
            future.set_result(message.get("result"))
            return
        fields = error if isinstance(error, dict) else {}
        code = fields.get("code")
        future.set_exception(
            RpcError(code if isinstance(code, int) else INTERNAL_ERROR, one_line(str(fields.get("message", error))))
        )

    async def _take_notification(self, methods: Methods, method: str, params: Any) -> None:
        if method == "$/cancel_request":
            task = self._requests.get(params.get("requestId")) if isinstance(params, dict) else None
            if task is not None:
                task.cancel()
            return
        try:
            await methods.notify(method, params)
        except Exception as error:  # noqa: BLE001 - a notification has no answer; the connection stays open
            self._log(f"{method}: {describe_error(error).message}")

    async def _answer(self, methods: Methods, id: RequestId, method: str, params: Any) -> None:
        answer: JsonObject
        try:
            answer = {"id": id, "result": await methods.call(method, params)}
        except asyncio.CancelledError:
            answer = {"id": id, "error": RpcError(CANCELLED, f"{method} was cancelled").to_json()}
        except Exception as error:  # noqa: BLE001 - a bug ends the request, not the connection
            answer = {"id": id, "error": describe_error(error).to_json()}
            if not isinstance(error, RpcError | SessionTreeError | ConnectionClosedError):
                self._log(f"{method}: internal error: {type(error).__name__}: {error}")
        finally:
            if self._requests.get(id) is asyncio.current_task():
                del self._requests[id]
        await self._send(answer)

    def _refuse(self, id: RequestId, error: RpcError) -> None:
        self._log(error.message)
        self._spawn(self._send({"id": id, "error": error.to_json()}))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(_until_closed(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self, seconds: float = 5.0) -> None:
        """Finish the requests in progress, if the client still reads and for at most this long; write the answers."""
        if self._tasks and not self._closed.is_set():
            await asyncio.wait(list(self._tasks), timeout=seconds)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._writer.end, seconds)


async def _until_closed(work: Awaitable[None]) -> None:
    with contextlib.suppress(ConnectionClosedError):  # no client is left to be answered
        await work


def describe_error(error: Exception) -> RpcError:
    """An error as reported to the client, without a traceback."""
    match error:
        case RpcError():
            return error
        case AmbiguousError():
            return RpcError(INVALID_PARAMS, _message(error), {"kind": "AmbiguousError"})
        case NotFoundError():
            return RpcError(NOT_FOUND, _message(error), {"kind": "NotFoundError"})
        case UsageError():
            return RpcError(INVALID_PARAMS, _message(error), {"kind": type(error).__name__})
        case SessionTreeError():
            return RpcError(INTERNAL_ERROR, _message(error), {"kind": type(error).__name__})
        case _:
            return RpcError(INTERNAL_ERROR, one_line(f"internal error: {type(error).__name__}: {error}"))


def _message(error: Exception) -> str:
    return clean(str(error)).strip() or type(error).__name__
