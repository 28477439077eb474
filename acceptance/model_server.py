"""A scripted model on 127.0.0.1: Anthropic Messages, OpenAI Responses and Chat Completions, and Gemini.

Every request gets the same short answer, as a stream of events or as one object; a prompt with `directives` gets what
they ask for. All requests are recorded: they show the history that a client sends.
"""

from __future__ import annotations

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from acceptance.directives import read_directives
from sessiontree.models.scripted import ScriptTurn, usage_of
from sessiontree.testing.model_protocols import (
    Anthropic,
    Gemini,
    ModelRequest,
    OpenAIChat,
    OpenAIResponses,
    StreamProtocol,
)

_PROTOCOLS: dict[str, StreamProtocol] = {
    "/v1/messages": Anthropic(),
    "/v1/chat/completions": OpenAIChat(),
    "/v1/responses": OpenAIResponses(),
    ":streamGenerateContent": Gemini(),
}

ANSWER = "Understood."


class ModelServer(ThreadingHTTPServer):
    """Serves from its own thread inside a `with` block. `requests` has path and body of each request."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.requests: list[dict[str, Any]] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def __enter__(self) -> ModelServer:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        path = self.path.partition("?")[0]
        cast(ModelServer, self.server).requests.append({"path": path, "body": body})
        request = body if isinstance(body, dict) else {}
        turn = read_directives(request)
        protocol = next((found for ending, found in _PROTOCOLS.items() if path.endswith(ending)), None)
        if turn is not None and protocol is not None:
            self._play(protocol, turn, request)
        elif path == "/v1/messages/count_tokens":
            self._reply(200, {"input_tokens": 1})
        elif path == "/v1/responses":
            self._stream(_response_events())
        elif path == "/v1/chat/completions":
            self._chat(request)
        elif path.endswith(":streamGenerateContent"):
            self._send_data([_gemini_response()])
        elif path.endswith(":generateContent"):
            self._reply(200, _gemini_response())
        elif path.endswith(":countTokens"):
            self._reply(200, {"totalTokens": 1})
        elif path != "/v1/messages":
            self._reply(404, {"type": "error", "error": {"type": "not_found_error", "message": path}})
        elif request.get("stream"):
            self._stream(_events(request))
        else:
            self._reply(200, {**_message(request), "content": [{"type": "text", "text": ANSWER}], **_END})

    def _play(self, protocol: StreamProtocol, turn: ScriptTurn, request: dict[str, Any]) -> None:
        number = int(uuid.uuid4().hex[:12], 16)
        about = ModelRequest(str(request.get("model") or "scripted"), request, number)
        lines: list[str] = []
        for event in protocol.events(about, turn, usage_of(turn, 1000)):
            data = event.data if isinstance(event.data, str) else json.dumps(event.data)
            lines += [f"event: {event.event}\n"] if event.event else []
            lines.append(f"data: {data}\n\n")
        self._send(200, "text/event-stream", "".join(lines).encode())

    def _stream(self, events: list[dict[str, Any]]) -> None:
        data = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self._send(200, "text/event-stream", data.encode())

    def _chat(self, request: dict[str, Any]) -> None:
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": 1, "model": request.get("model", "scripted")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        message = {"role": "assistant", "content": ANSWER}
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._reply(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        chunks: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": usage},
        ]
        self._send_data([{**head, "object": "chat.completion.chunk", **chunk} for chunk in chunks], end="[DONE]")

    def _send_data(self, events: list[dict[str, Any]], end: str = "") -> None:
        lines = [*map(json.dumps, events), *([end] if end else [])]
        data = "".join(f"data: {line}\n\n" for line in lines)
        self._send(200, "text/event-stream", data.encode())

    def do_GET(self) -> None:
        self._reply(404, {"type": "error", "error": {"type": "not_found_error", "message": self.path}})

    def do_HEAD(self) -> None:
        self._send(200, "text/plain", b"")

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _reply(self, status: int, value: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


_END = {"stop_reason": "end_turn", "stop_sequence": None}


def _message(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex}",  # clients take lines with the same id for parts of one response
        "type": "message",
        "role": "assistant",
        "model": request.get("model", "scripted"),
        "content": [],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _events(request: dict[str, Any]) -> list[dict[str, Any]]:
    start = {**_message(request), "stop_reason": None, "stop_sequence": None}
    return [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": _END, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def _response_events() -> list[dict[str, Any]]:
    id = f"resp_{uuid.uuid4().hex}"
    part = {"type": "output_text", "text": ANSWER, "annotations": []}
    item: dict[str, Any] = {
        "type": "message",
        "id": f"msg_{uuid.uuid4().hex}",
        "role": "assistant",
        "status": "completed",
    }
    item |= {"content": [part]}
    usage: dict[str, Any] = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    done = {"id": id, "object": "response", "status": "completed", "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {"id": id, "object": "response", "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "item_id": item["id"], "delta": ANSWER},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]


def _gemini_response() -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": ANSWER}]}
    counts = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}], "usageMetadata": counts}
