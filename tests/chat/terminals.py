"""`sessiontree chat` as a user runs it: the real program on a pseudo-terminal, and a project to work in."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

import sessiontree
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import ToolResult, message_text, tool_calls
from sessiontree.models.scripted import Script, ScriptCall, ScriptTurn
from sessiontree.repair import examine
from sessiontree.session.session import Session

SECONDS = 120.0
"""Longer than anything takes on a busy machine."""

_sequences = re.compile(r"\x1b(?:\[[0-9;?<>=]*[A-Za-z]|\][^\x07]*\x07|\(B|[=>])|\r")
_WITH_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "sessiontree", *sys.argv[1:]])
"""


def turn(text: str, *calls: ScriptCall, **more: object) -> ScriptTurn:
    return ScriptTurn(text=text, tool_calls=calls, **more)  # type: ignore[arg-type]


def call(name: str, **arguments: object) -> ScriptCall:
    return ScriptCall(name, arguments)


class Place:
    """A temporary project folder and home folder."""

    def __init__(self, root: Path) -> None:
        self.project, self.home = root / "project", root / "home"
        self.project.mkdir()
        self.home.mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.environment: dict[str, str] = {
            **kept,
            "HOME": str(root),
            "SESSIONTREE_HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color",
        }

    def run(self, *arguments: str, typed: str = "", more: Mapping[str, str] | None = None) -> Done:
        """`sessiontree chat` without a terminal."""
        done = subprocess.run(
            [sys.executable, "-m", "sessiontree", "chat", *arguments],
            input=typed,
            capture_output=True,
            text=True,
            cwd=self.project,
            env={**self.environment, **(more or {})},
            timeout=SECONDS,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def sessions(self) -> list[Session]:
        """All sessions of the home folder, oldest first."""
        paths = sorted((self.home / "sessions").rglob("*.jsonl"), key=lambda path: path.name)
        return [sessiontree.open(path, home=self.home) for path in paths]

    def session(self) -> Session:
        """The newest session, sound."""
        newest = self.sessions()[-1]
        check_is_sound(newest)
        return newest


def scripted(place: Place, *turns: ScriptTurn, name: str = "script") -> str:
    """The name of a model that plays a script in the process itself."""
    path = place.home / f"{name}.json"
    path.write_bytes(render_json(msgspec.to_builtins(Script(turns))))
    return f"scripted:{path}"


def session_texts(place: Place) -> list[str]:
    """The messages of the newest session."""
    return texts(place.session())


def texts(session: Session) -> list[str]:
    return [message_text(message) for message in session.context().messages]


class Done:
    """A program that has ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def objects(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Terminal:
    """A pseudo-terminal that runs the program."""

    def __init__(
        self,
        place: Place,
        arguments: Sequence[str],
        more: Mapping[str, str] | None = None,
        command: str = "chat",
        *,
        plain: bool = True,
    ) -> None:
        """A chat is plain, line by line, unless the test is about the one on the whole screen."""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        words = [command, "--plain"] if command == "chat" and plain else [command]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WITH_TERMINAL, *words, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=place.project,
            env={**place.environment, **(more or {})},
            start_new_session=True,
        )
        os.close(slave)
        self.raw = ""
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)

    @property
    def shown(self) -> str:
        return _sequences.sub("", self.raw)

    def wait_for(self, text: str) -> str:
        """Wait until new output contains a text; returns the output since the last wait."""
        deadline = time.monotonic() + SECONDS
        while True:
            at = self.shown.find(text, self._seen)
            if at >= 0:
                came = self.shown[self._seen : at + len(text)]
                self._seen = at + len(text)
                return came
            if time.monotonic() > deadline or not self._read():
                raise AssertionError(f"{text!r} did not come:\n{self.shown[self._seen :]}")

    def _read(self) -> bool:
        """Read available output; returns whether more may come."""
        ready, _, _ = select.select([self.master], [], [], 0.2)
        if not ready:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other side is closed
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def enter(self, line: str) -> None:
        """Type a line at the prompt, and wait until the program has read it."""
        self.wait_for_prompt()
        self.answer(line)

    def wait_for_prompt(self) -> None:
        # Without the blank behind it: it is drawn as a move of the cursor.
        self.wait_for("\n>")

    def answer(self, line: str) -> None:
        self.type(line)
        self.type("\r")

    def interrupt(self) -> None:
        self.type("\x03")

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.kill(self.process.pid, signal.SIGWINCH)

    def read_for(self, seconds: float) -> None:
        """Read output for some time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.master], [], [], left)[0]:
                self._read()

    def end(self) -> int:
        """Wait until the program exits; returns its exit code."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read()
        assert self.process.poll() is not None, self.shown[-2000:]
        return self.process.returncode

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def check_is_sound(session: Session) -> None:
    """Check that `doctor` finds nothing and every call has a result."""
    assert [finding.rule.id for finding in examine(session)] == []
    messages = list(session.context().messages)
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolResult)}
    assert {one.id for message in messages for one in tool_calls(message)} <= answered


def wait_until(path: Path) -> None:
    """Wait until a file exists and is not empty."""
    deadline = time.monotonic() + SECONDS
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)
