"""A machine for each test: agents' folders with sessions, git repositories, a library."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sessiontree.dialects.claude.locations import project_key
from sessiontree.library import Library

IDS = [f"{number:08x}-0000-4000-8000-{number:012x}" for number in range(0x0A000000, 0x0A000100)]


def json_lines(lines: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n" for line in lines)


def clock(minute: int) -> str:
    return f"2026-02-16T{10 + minute // 60:02d}:{minute % 60:02d}:00.000Z"


class World:
    """Everything below one folder, and an environment that keeps a library inside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "user"
        self.home.mkdir(parents=True, exist_ok=True)
        self.environment = {
            "HOME": str(self.home),
            "SESSIONTREE_HOME": str(self.home / "st"),
            "SESSIONTREE_CACHE": str(folder / "cache"),
            "PATH": os.environ["PATH"],
        }

    def library(self, **arguments: Any) -> Library:
        return Library(environment=self.environment, **arguments)

    def put(self, path: str | Path, lines: Sequence[Any] | bytes) -> Path:
        whole = self.home / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_bytes(lines if isinstance(lines, bytes) else json_lines(lines))
        return whole

    def claude(self, id: str, cwd: str | Path, prompts: Sequence[str] = ("hello",), *, minute: int = 0) -> Path:
        path = Path(".claude/projects", project_key(os.path.realpath(cwd)), f"{id}.jsonl")
        return self.put(path, claude_lines(id, str(cwd), prompts, minute=minute))

    def pi(
        self, id: str, cwd: str | Path, prompts: Sequence[str] = ("hello",), *, minute: int = 0, **header: Any
    ) -> Path:
        folder = "--" + str(cwd).strip("/").replace("/", "-") + "--"
        path = Path(".pi/agent/sessions", folder, f"2026-02-16T10-00-00-000Z_{id}.jsonl")
        return self.put(path, pi_lines(id, str(cwd), prompts, minute=minute, **header))


def claude_lines(
    id: str, cwd: str, prompts: Sequence[str] = ("hello",), *, minute: int = 0, sidechain: bool = False
) -> list[dict[str, Any]]:
    """Alternating prompts and responses."""
    lines: list[dict[str, Any]] = []
    parent: str | None = None
    for number, prompt in enumerate(prompts):
        for role in ("user", "assistant"):
            uuid = f"{role}-{number}-{id[:8]}"
            message: dict[str, Any] = {"role": role, "content": prompt}
            if role == "assistant":
                usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100}
                message = {
                    "id": f"msg_{number}",
                    "role": role,
                    "model": "swift-4",
                    "content": [{"type": "text", "text": "done"}],
                    "usage": usage,
                }
            around = {"isSidechain": sidechain, "cwd": cwd, "sessionId": id, "gitBranch": "main", "version": "2.1.325"}
            line = {"parentUuid": parent, **around, "type": role, "message": message, "uuid": uuid}
            lines.append({**line, "timestamp": clock(minute + number)})
            parent = uuid
    return lines


def pi_lines(
    id: str, cwd: str, prompts: Sequence[str] = ("hello",), *, minute: int = 0, **header: Any
) -> list[dict[str, Any]]:
    """A session in Pi's format."""
    lines = [{"type": "session", "version": 3, "id": id, "timestamp": clock(minute), "cwd": cwd, **header}]
    parent: str | None = None
    for number, prompt in enumerate(prompts):
        for role in ("user", "assistant"):
            entry = f"{role[0]}{number:07x}"
            message: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": prompt}], "timestamp": 1}
            if role == "assistant":
                usage = {"input": 10, "output": 5, "cacheRead": 100, "cacheWrite": 0, "cost": {"total": 0.25}}
                message |= {"provider": "anvil", "model": "granite-2", "usage": usage, "stopReason": "stop"}
            outside = {"type": "message", "id": entry, "parentId": parent, "timestamp": clock(minute + number)}
            lines.append({**outside, "message": message})
            parent = entry
    return lines


def append(path: Path, lines: Sequence[Any] | bytes) -> None:
    """Append lines as an agent does; the modification time changes, however fast the test is."""
    with open(path, "ab") as file:
        file.write(lines if isinstance(lines, bytes) else json_lines(lines))
    touch(path)


def touch(path: Path) -> None:
    os.utime(path, ns=(time.time_ns(), os.stat(path).st_mtime_ns + 1_000_000))


def git(folder: Path, *arguments: str) -> str:
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        **{f"GIT_{who}_{what}": f"ada@{who}.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    command = ["git", "-c", "protocol.file.allow=always", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def repository(folder: Path, *, remote: str | None = None, content: str = "first") -> Path:
    """A git repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text(content)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", content)
    if remote:
        git(folder, "remote", "add", "origin", remote)
    return folder
