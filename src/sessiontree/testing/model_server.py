"""A server on 127.0.0.1 that replays a script in the streaming protocols of Anthropic, OpenAI and Gemini.

    python -m sessiontree.testing.model_server --script turns.json --port 0 --record requests.jsonl

Use it to try out or test code that calls a model. `sessiontree.models.scripted` describes scripts. The server
prints its address as a line of JSON as soon as it listens. It records every request in memory and as a line of the
record file, and does not check API keys. In a test:

    with ModelServer(script) as server:
        model = open_model("anthropic:any", environment=server.environment())
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from msgspec import Struct

from sessiontree.core.jsonio import JsonObject, parse_json, render_json
from sessiontree.errors import SessionTreeError
from sessiontree.models.scripted import Script, ScriptPlayer, ScriptTurn, read_script, usage_of
from sessiontree.testing.model_protocols import (
    Anthropic,
    Gemini,
    ModelRequest,
    OpenAIChat,
    OpenAIResponses,
    ServerSentEvent,
    StreamProtocol,
)

ADDRESS = "127.0.0.1"
_SECRET = frozenset({"authorization", "x-api-key", "x-goog-api-key"})


class Recorded(Struct):
    """A request and its outcome."""

    path: str
    headers: dict[str, str]
    """Names in lower case; API keys are masked."""
    body: JsonObject
    outcome: str = "running"
    """`answered`, `refused`, `dropped` by the script, or `left` by the client."""


class ModelServer:
    """Listens from `start` to `stop`, or inside a `with` block."""

    def __init__(self, script: Script | Sequence[ScriptTurn], port: int = 0, record: str | None = None) -> None:
        self._player = ScriptPlayer(script if isinstance(script, Script) else Script(tuple(script)))
        self._record = record
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self.requests: list[Recorded] = []
        self._server = _Server(self, port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}"

    def environment(self) -> dict[str, str]:
        """The environment variables that direct every provider to this server."""
        keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
        return {
            **dict.fromkeys(keys, "a-key-for-nothing"),
            "ANTHROPIC_BASE_URL": self.url,
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "OLLAMA_HOST": f"{ADDRESS}:{self.port}",
            "VLLM_BASE_URL": f"{self.url}/v1",
            "LLAMACPP_BASE_URL": f"{self.url}/v1",
            "OPENAI_COMPATIBLE_BASE_URL": f"{self.url}/v1",
        }

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    __enter__ = start

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_for(self, outcome: str, seconds: float = 10.0) -> Recorded:
        """Wait for the first request with this outcome."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = next((request for request in self.requests if request.outcome == outcome), None)
            if found is not None:
                return found
            time.sleep(0.01)
        outcomes = [request.outcome for request in self.requests]
        raise TimeoutError(f"no request was {outcome} in {seconds:g} s: {outcomes}")

    def _begin(self, path: str, headers: Mapping[str, str], body: JsonObject) -> tuple[Recorded, int]:
        shown = {name.lower(): "***" if name.lower() in _SECRET else value for name, value in headers.items()}
        recorded = Recorded(path, shown, body)
        with self._lock:
            self.requests.append(recorded)
            return recorded, next(self._numbers)

    def _end(self, recorded: Recorded, outcome: str) -> None:
        recorded.outcome = outcome
        if self._record is not None:
            with self._lock, open(self._record, "ab") as file:
                file.write(render_json(recorded) + b"\n")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A request that waits in a script's delay must not keep the server from stopping.
    block_on_close = False

    def __init__(self, model_server: ModelServer, port: int) -> None:
        self.model_server = model_server
        super().__init__((ADDRESS, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        # Tests disconnect clients on purpose; any other error is printed as usual.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: every request is recorded."""

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        protocol = _protocol(path)
        try:
            body = parse_json(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        except ValueError:
            body = None
        if protocol is None or not isinstance(body, dict):
            self._refuse(404 if protocol is None else 400, {"error": {"message": "unknown path or invalid request"}})
            return
        model_server = self.server.model_server
        recorded, number = model_server._begin(path, dict(self.headers), body)
        request = ModelRequest(str(body.get("model") or _model_in(path)), body, number)
        turn = model_server._player.next_turn(protocol.last_message(body))
        outcome = "left"
        with contextlib.suppress(ConnectionError, TimeoutError):
            outcome = self._play(protocol, request, turn)
        model_server._end(recorded, outcome)

    def _play(self, protocol: StreamProtocol, request: ModelRequest, turn: ScriptTurn | None) -> str:
        if turn is None:
            self._refuse(*protocol.refusal("refused"))
            return "refused"
        time.sleep(turn.first_delay)
        if turn.error is not None and not turn.error.in_stream:
            self._refuse(*protocol.refusal(turn.error.kind), turn.error.retry_after)
            return "refused"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        usage = usage_of(turn, len(json.dumps(request.body)))
        events = protocol.events(request, turn, usage)
        for sent, event in enumerate(events):
            if turn.drop_after is not None and sent >= turn.drop_after:
                self._drop()
                return "dropped"
            if turn.error is not None and _is_last(event):
                break
            self._pause(turn.delay)
            self._chunk(_rendered(event))
        if turn.error is not None:
            self._chunk(_rendered(protocol.failure(turn.error.kind)))
        self._chunk(b"")
        return "answered"

    def _pause(self, seconds: float) -> None:
        """Wait, unless the client disconnects meanwhile."""
        if seconds <= 0:
            return
        self.connection.settimeout(seconds)
        try:
            if not self.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError("the client disconnected")
            time.sleep(seconds)  # the client has sent more data, so it is still connected
        except TimeoutError:
            pass
        finally:
            self.connection.settimeout(None)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _refuse(self, status: int, body: JsonObject, retry_after: float | None = None) -> None:
        data = render_json(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after is not None:
            self.send_header("Retry-After", f"{retry_after:g}")
        self.end_headers()
        self.wfile.write(data)


def _protocol(path: str) -> StreamProtocol | None:
    for ending, protocol in _PROTOCOLS.items():
        if path.endswith(ending):
            return protocol
    return None


_PROTOCOLS: dict[str, StreamProtocol] = {
    "/messages": Anthropic(),
    "/chat/completions": OpenAIChat(),
    "/responses": OpenAIResponses(),
    ":streamGenerateContent": Gemini(),
}


def _model_in(path: str) -> str:
    return path.rpartition("/")[2].partition(":")[0]


def _rendered(event: ServerSentEvent) -> bytes:
    data = event.data.encode() if isinstance(event.data, str) else render_json(event.data)
    name = f"event: {event.event}\n".encode() if event.event else b""
    return name + b"data: " + data + b"\n\n"


def _is_last(event: ServerSentEvent) -> bool:
    """Whether an event completes the response. A response that fails must not send it."""
    if isinstance(event.data, str):
        return True
    kind = event.data.get("type", "")
    ends = kind in ("message_delta", "response.completed", "response.incomplete")
    choices = [*event.data.get("choices", ()), *event.data.get("candidates", ())]
    return ends or any(choice.get("finish_reason") or choice.get("finishReason") for choice in choices)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sessiontree.testing.model_server", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--script", metavar="FILE", required=True, help="script of the responses")
    parser.add_argument(
        "--port", metavar="N", type=int, default=0, help="port to listen on; 0 (default) chooses a free one"
    )
    parser.add_argument("--record", metavar="FILE", help="append each request as a line of JSON")
    options = parser.parse_args(arguments)
    try:
        server = ModelServer(read_script(options.script), options.port, options.record)
    except (SessionTreeError, OSError) as error:
        print(f"model_server: {error}", file=sys.stderr)
        return 1
    with server:
        print(json.dumps({"url": server.url, "port": server.port, "environment": server.environment()}), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            for _ in _forever():
                pass
    return 0


def _forever() -> Iterator[None]:
    while True:
        time.sleep(3600)
        yield


if __name__ == "__main__":
    sys.exit(main())
