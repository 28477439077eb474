"""Helpers for tests of the agent: a project with a session, tool calls, processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sessiontree
from sessiontree.agent.approval import Approvals, Question, Reply
from sessiontree.agent.checkpoints import Checkpoints
from sessiontree.agent.tool_calls import ToolRunner
from sessiontree.agent.tools.base import Tool, ToolContext, ToolOutput, load_tools
from sessiontree.agent.workspace import Workspace
from sessiontree.core.messages import ToolCall
from sessiontree.session.session import Session
from sessiontree.stores.blobs import FileBlobs

BARE = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8"}


class Answers:
    """An approver that always gives the same reply, and records the questions."""

    def __init__(self, reply: Reply | None = None) -> None:
        self.reply = reply or Reply("once")
        self.questions: list[Question] = []

    async def ask(self, question: Question) -> Reply:
        self.questions.append(question)
        return self.reply


class Workplace:
    """A project folder with a session, tools, approvals and checkpoints."""

    def __init__(self, folder: Path, *, environment: Mapping[str, str] = BARE, added: tuple[Path, ...] = ()) -> None:
        self.project = folder / "project"
        self.project.mkdir(exist_ok=True)
        self.home = folder / "home"
        self.outputs = folder / "outputs"
        self.session: Session = sessiontree.create(self.project, home=self.home)
        self.workspace = Workspace(self.project, added, guarded=(str(self.home),))
        self.context = ToolContext(self.workspace, environment, outputs=str(self.outputs))
        self.blobs = FileBlobs(self.home / "blobs")
        self.approvals = Approvals(self.session)
        self.answers = Answers()
        self.checkpoints = Checkpoints(self.session, self.workspace, self.blobs)
        self.calls = ToolRunner(
            load_tools(), self.context, self.approvals, approver=self.answers, checkpoints=self.checkpoints
        )

    def run(self, tool: Tool, **arguments: Any) -> ToolOutput:
        """Run a tool directly, without approval."""
        return asyncio.run(tool.run(arguments, self.context))

    def call(self, name: str, **arguments: Any) -> ToolOutput:
        """Make a call like a model."""
        return asyncio.run(self.calls.call(ToolCall("call-1", name, arguments)))


def is_alive(pid: int) -> bool:
    """Whether a process is running, not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # gone before the file was opened, or before it was read
        return False
    return state not in ("Z", "X")


def kill_all_of(session: int) -> None:
    """Kill all processes of a process session, in whatever groups, and wait until they have ended."""
    while found := [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _session_of(pid) == session]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _session_of(pid: int) -> int | None:
    try:
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in ("Z", "X") else int(session)


def wait_for(condition: Any, seconds: float = 120.0) -> Any:
    """Wait until a condition is true, and return its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("the condition did not become true")


def pid_in(path: Path) -> int:
    """The process id that a command wrote to a file, after the program that started it has registered it."""
    found = int(wait_for(lambda: path.exists() and path.read_text().strip()))
    time.sleep(0.1)
    return found


@contextlib.contextmanager
def child_process(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A child process that is killed and reaped at the end of the block, so that a failed test does not leave it."""
    with subprocess.Popen(command, text=True, **options) as child:
        try:
            yield child
        finally:
            child.kill()


def tree(folder: Path) -> dict[str, tuple[str, object]]:
    """Everything below a folder, except `.git`: kind, permissions and content."""
    found: dict[str, tuple[str, object]] = {}
    for top, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        for name in [*folders, *files]:
            path = Path(top, name)
            relative = str(path.relative_to(folder))
            if path.is_symlink():
                found[relative] = ("link", os.readlink(path))
            elif path.is_dir():
                found[relative] = ("folder", None)
            else:
                found[relative] = (f"{path.stat().st_mode & 0o777:o}", path.read_bytes())
    return found
