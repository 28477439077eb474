"""A simulated machine with sessions of several agents, and child processes that are killed at a chosen system call."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from sessiontree.archive.archive_home import Home
from sessiontree.stores.os_calls import OsCalls
from tests.builders import header, json_line, message_line

NATIVE_ID = "019c0000-0000-7000-8000-00000000000a"
CLAUDE_ID = "7053107e-0000-4000-8000-00000000000b"


def environment(tmp: Path) -> dict[str, str]:
    """Environment variables that keep all folders of a user below one folder, with the cache next to it."""
    return {
        "HOME": str(tmp / "user"),
        "SESSIONTREE_HOME": str(tmp / "home"),
        "SESSIONTREE_CACHE": str(tmp.parent / f"{tmp.name}-cache"),
        "PATH": os.environ["PATH"],
    }


def home_of(tmp: Path, os_calls: OsCalls | None = None) -> Home:
    return Home(str(tmp / "home"), environment=environment(tmp), os_calls=os_calls or QuickOsCalls())


def native_lines(time: str = "2026-02-16T10:00:01.000Z") -> list[bytes]:
    """A native session with a fork at m1: branches m2 m3 and n2 n3, the current one."""
    lines = [
        header(cwd="/work/a", sessiontree=1),
        message_line("m0", None, "first"),
        message_line("m1", "m0", "answer", role="assistant"),
    ]
    lines += [message_line("m2", "m1", "left"), message_line("m3", "m2", "left answer", role="assistant")]
    lines += [message_line("n2", "m1", "right"), message_line("n3", "n2", "right answer", role="assistant")]
    return [line.replace(b"2026-02-16T10:00:01.000Z", time.encode()) for line in lines]


def write_native(
    tmp: Path, lines: list[bytes] | None = None, name: str = f"2026-02-16T10-00-00-000Z_{NATIVE_ID}"
) -> Path:
    path = tmp / "home" / "sessions" / "a-0123456789" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines if lines is not None else native_lines()))
    return path


def claude_line(kind: str, uuid: str, parent: str | None, **fields: object) -> bytes:
    around = {"sessionId": CLAUDE_ID, "timestamp": "2026-02-16T10:00:01.000Z", "cwd": "/work/a", "version": "2.1.150"}
    return json_line({"type": kind, "uuid": uuid, "parentUuid": parent, "isSidechain": False, **around, **fields})


def claude_message(uuid: str, parent: str | None, text: str, role: str = "user") -> bytes:
    content: object = text if role == "user" else [{"type": "text", "text": text}]
    message = {"role": role, "content": content, **({"id": f"msg_{uuid}"} if role == "assistant" else {})}
    return claude_line(role, uuid, parent, message=message)


def write_claude(tmp: Path, lines: list[bytes] | None = None) -> Path:
    """A Claude Code session with a sub-agent, spilled output and a link in its folder."""
    path = tmp / "user" / ".claude" / "projects" / "-work-a" / f"{CLAUDE_ID}.jsonl"
    folder = path.with_suffix("")
    (folder / "subagents").mkdir(parents=True, exist_ok=True)
    (folder / "tool-results").mkdir(exist_ok=True)
    own = [claude_message("u1", None, "first"), claude_message("u2", "u1", "answer", "assistant")]
    path.write_bytes(b"".join(lines if lines is not None else own))
    (folder / "subagents" / "agent-x.jsonl").write_bytes(claude_message("s1", None, "sub"))
    (folder / "tool-results" / "out.txt").write_bytes(b"\x00\xff spilled \n" * 100)
    return path


def contents(*folders: Path) -> dict[str, bytes]:
    """Every regular file below some folders."""
    found: dict[str, bytes] = {}
    for top in folders:
        found.update(
            {str(path): path.read_bytes() for path in top.rglob("*") if path.is_file() and not path.is_symlink()}
        )
    return found


class QuickOsCalls(OsCalls):
    """Skips fsync: killing a process loses no written data, only a power cut does."""

    def fsync(self, fd: int, *, data_only: bool = False) -> None:
        pass


class DyingOsCalls(QuickOsCalls):
    """Kills its own process with SIGKILL right before the n-th call."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def _step(self) -> None:
        self._left -= 1
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self._step()
        return super().open(path, flags, mode)

    def write(self, fd: int, data: bytes) -> int:
        self._step()
        if self._left == 1 and len(data) > 1:  # the next call would be killed: instead die halfway through this write
            super().write(fd, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return super().write(fd, data)

    def fsync(self, fd: int, *, data_only: bool = False) -> None:
        self._step()

    def link(self, source: str, target: str) -> None:
        self._step()
        super().link(source, target)

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)


def kill_at_each_step(
    tmp: Path,
    prepare: Callable[[Path], None],
    act: Callable[[Home], object],
    check: Callable[[Path], None],
    stride: int,
) -> int:
    """Prepare a folder, act on it in a child process that is killed at its n-th call, and check the folder.

    For n = 1, 1 + stride, ... until the child survives; returns the last n. See the fixture `stride`.
    """
    nth = 1
    while True:
        folder = tmp / f"step{nth}"
        folder.mkdir()
        prepare(folder)
        pid = os.fork()
        if pid == 0:
            code = 9
            try:
                act(home_of(folder, DyingOsCalls(nth)))
                code = 0
            finally:
                os._exit(code)
        status = os.waitpid(pid, 0)[1]
        check(folder)
        shutil.rmtree(folder)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            return nth
        assert nth < 2000
        nth += stride


def archived_lines(home: Home) -> set[bytes]:
    """Every line of every file in the archive."""
    lines: set[bytes] = set()
    for item in home.archive.items():
        for file in item.files:
            lines.update(b"".join(home.archive.objects.read(file.sha256)).split(b"\n"))
    return lines


def current_lines(home: Home) -> set[bytes]:
    """Every line of every session file in its folder."""
    lines: set[bytes] = set()
    for root in home.roots:
        for path in Path(root).rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                lines.update(path.read_bytes().split(b"\n"))
    return lines
