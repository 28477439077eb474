"""A client of the Agent Client Protocol, and `sessiontree acp` as an editor starts it."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SECONDS = 60.0
"""Longer than anything takes on a busy machine."""


class RefusedError(Exception):
    """An error response."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code, self.message = error["code"], error["message"]


class Client:
    """A running agent. `answer` answers its requests; None leaves them open."""

    def __init__(self, home: Path, *arguments: str, more: Mapping[str, str] | None = None) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environment = {**kept, "HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "LC_ALL": "C.UTF-8"}
        self.errors = home / "stderr.txt"
        with self.errors.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sessiontree", "acp", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**environment, **(more or {})},
                cwd=home,
            )
        self.answer: Callable[[dict[str, Any]], Any] = allow
        self.asked: list[dict[str, Any]] = []
        self.updates: list[dict[str, Any]] = []
        self.notifications: list[dict[str, Any]] = []
        self._responses: dict[Any, queue.Queue[dict[str, Any]]] = {}
        self.unasked: queue.Queue[dict[str, Any]] = queue.Queue()
        """Responses to messages without an id."""
        self._last = 0
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is None:
            assert self.end() == 0
        else:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self._reader.join(SECONDS)
        self.process.stdout.close()
        assert "Traceback" not in self.errors.read_text(encoding="utf-8")

    def end(self) -> int:
        """Close the agent's input, and wait for its end."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        return self.process.wait(SECONDS)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            with self._changed:
                self._take(message)
                self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self._responses.get(message["id"], self.unasked).put(message)
        elif "id" in message:
            self.asked.append(message)
            result = self.answer(message["params"])
            if result is not None:
                self.write({"jsonrpc": "2.0", "id": message["id"], "result": result})
        elif message["method"] == "session/update":
            self.updates.append(message["params"]["update"])
        else:
            self.notifications.append(message)

    def write(self, message: object) -> None:
        self.write_line(json.dumps(message).encode())

    def write_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def start(self, method: str, **params: Any) -> int:
        """Send a request; returns its id for `result`."""
        self._last += 1
        self._responses[self._last] = queue.Queue()
        self.write({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def result(self, id: int) -> Any:
        response = self._responses[id].get(timeout=SECONDS)
        if "error" in response:
            raise RefusedError(response["error"])
        return response["result"]

    def call(self, method: str, **params: Any) -> Any:
        return self.result(self.start(method, **params))

    def notify(self, method: str, **params: Any) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        until = time.monotonic() + SECONDS
        with self._changed:
            while not condition():
                assert self._changed.wait(until - time.monotonic()), f"{what} did not happen"

    # Shortcuts

    def initialize(self, **capabilities: Any) -> Any:
        return self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)

    def new(self, cwd: Path) -> str:
        id: str = self.call("session/new", cwd=str(cwd), mcpServers=[])["sessionId"]
        return id

    def load(self, id: str, cwd: Path) -> list[dict[str, Any]]:
        """The updates of a replay."""
        self.updates.clear()
        self.call("session/load", sessionId=id, cwd=str(cwd), mcpServers=[])
        return list(self.updates)

    def start_prompt(self, id: str, *texts: str) -> int:
        return self.start("session/prompt", sessionId=id, prompt=[{"type": "text", "text": text} for text in texts])

    def prompt(self, id: str, *texts: str) -> str:
        reason: str = self.result(self.start_prompt(id, *texts))["stopReason"]
        return reason

    def text(self, kind: str = "agent_message_chunk") -> str:
        """The text of all parts of this kind so far."""
        parts = [update for update in self.updates if update["sessionUpdate"] == kind]
        return "".join(part["content"].get("text", "") for part in parts)

    def statuses(self) -> list[tuple[str, str]]:
        """Title or id and status of each change of a call."""
        found = [update for update in self.updates if update["sessionUpdate"].startswith("tool_call")]
        return [(update.get("title", update["toolCallId"]), update["status"]) for update in found if "status" in update]


def choose(option: str) -> Callable[[dict[str, Any]], Any]:
    return lambda _: {"outcome": {"outcome": "selected", "optionId": option}}


allow = choose("once")


def leave_open(_: object) -> None:
    """No answer."""
