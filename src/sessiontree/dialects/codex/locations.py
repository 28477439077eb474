"""Paths of rollouts.

    sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl              a thread; its date and time are local
    sessions/YYYY/MM/DD/rollout-<time>-<thread>_<rollout>.jsonl    the same thread after it was reverted to a turn
    archived_sessions/<name>                                       an archived thread

Each may be compressed and then ends in `.jsonl.zst`.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.dialects.claude.locations import generate_uuid
from sessiontree.dialects.codex.header import meta_of
from sessiontree.dialects.codex.items import string
from sessiontree.dialects.contract import SessionFile
from sessiontree.dialects.defaults import is_session_name
from sessiontree.dialects.storage import EarlierPart, Joined, Storage

SESSION_NAMES = (".jsonl", ".jsonl.zst")
_FOLDERS = ("sessions", "archived_sessions")
_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_uuid = re.compile(rf"{_UUID}\Z")
_name = re.compile(rf"rollout-[0-9T-]+?-(?P<thread>{_UUID})(?:_(?P<rollout>{_UUID}))?\.jsonl(?:\.zst)?\Z")


def session_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    home = _codex_home(environment)
    return tuple(os.path.join(home, folder) for folder in _FOLDERS)


def _codex_home(environment: Mapping[str, str]) -> str:
    home = environment.get("HOME") or os.path.expanduser("~")
    return os.path.abspath(environment.get("CODEX_HOME") or os.path.join(home, ".codex"))


def classify_file(relative: str) -> SessionFile | None:
    if not is_session_name(relative, SESSION_NAMES):
        return None
    found = _name.match(relative.rpartition("/")[2])
    return SessionFile(id=found["thread"]) if found else SessionFile()


def session_titles(root: str, read: Callable[[str], bytes | None]) -> dict[str, str]:
    """The names of threads. The file is only appended to: the last name of a thread counts."""
    data = read(os.path.join(os.path.dirname(root), "session_index.jsonl")) or b""
    found = [parse_object(line) for line in data.split(b"\n") if line.strip()]
    names = {string(fields, "id"): string(fields, "thread_name") for fields in found}
    return {id: name for id, name in names.items() if id and name}


def find_destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    id = thread_id(meta.id)
    time = _local_time(meta.timestamp)
    folder = os.path.join(_codex_home(environment), "sessions", f"{time:%Y}", f"{time:%m}", f"{time:%d}")
    path = os.path.join(folder, f"rollout-{time:%Y-%m-%dT%H-%M-%S}-{id}.jsonl")
    return Destination(path, ("codex", "resume", id))


def _local_time(timestamp: str) -> datetime:
    try:
        return datetime.fromisoformat(timestamp).astimezone()
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def thread_id(id: str) -> str:
    """An id that Codex accepts: a UUID, derived from the original id if that is not one."""
    if _uuid.match(id):
        return id
    return generate_uuid(_namespace(), id)


@functools.cache
def _namespace() -> bytes:
    from uuid import NAMESPACE_URL, uuid5

    return uuid5(NAMESPACE_URL, "sessiontree:codex").bytes


# Files that continue others


def storage(path: str) -> Storage:
    return _COMPRESSED if path.endswith(".zst") else _PLAIN


def find_earlier(path: str, head: bytes) -> EarlierPart | None:
    """The file that a paginated rollout continues, by its header."""
    end = head.find(b"\n") + 1
    line = head[: end or len(head)]
    base = meta_of(line).get("history_base") if b'"history_base"' in line else None
    if not isinstance(base, dict):
        return None
    id, size = string(base, "thread_id"), base.get("end_byte_offset")
    if not _uuid.match(id) or type(size) is not int:
        raise ValueError("history_base has no thread or no byte offset")
    home = _home_of(path)
    names = (f"{id}.jsonl", f"{id}.jsonl.zst")
    return EarlierPart(home, names, size, after=end, likely_folders=_likely_folders(home, id, path))


def _home_of(path: str) -> str:
    """The folder that has all rollouts: Codex's home, or that of the file itself."""
    parts = os.path.dirname(os.path.abspath(path)).split(os.sep)
    for at in range(len(parts) - 1, 0, -1):
        if parts[at] in _FOLDERS:
            return os.sep.join(parts[:at]) or os.sep
    return os.sep.join(parts) or os.sep


def _likely_folders(home: str, id: str, path: str) -> tuple[str, ...]:
    """Where a rollout is likely to be, so that not every folder is searched: its id begins with its time."""
    folders = [os.path.dirname(os.path.abspath(path)), os.path.join(home, "archived_sessions")]
    try:
        created = datetime.fromtimestamp(int(id.replace("-", "")[:12], 16) / 1000, UTC)
        days = [created + timedelta(days=days) for days in (0, 1, -1)]
    except (ValueError, OverflowError, OSError):
        days = []
    return (*(os.path.join(home, "sessions", f"{day:%Y}", f"{day:%m}", f"{day:%d}") for day in days), *folders)


_PLAIN = Joined(find_earlier)
_COMPRESSED = Joined(find_earlier, codec="zstd")
