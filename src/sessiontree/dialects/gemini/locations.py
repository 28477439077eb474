"""Paths of Gemini CLI's sessions.

    ~/.gemini/projects.json                                  working folder -> name of the project
    ~/.gemini/tmp/<project>/.project_root                    the working folder
    ~/.gemini/tmp/<project>/chats/session-<time>-<id>.jsonl  a session; .json before 0.40
    ~/.gemini/tmp/<project>/chats/<session>/<id>.jsonl       a sub-agent of a session
    ~/.gemini/tmp/<project>/checkpoint-<tag>.json            a conversation that `/chat save` stored

Before there were names, a project's folder was the SHA-256 of its path.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.dialects.contract import SessionFile
from sessiontree.dialects.gemini.ids import session_id
from sessiontree.dialects.gemini.records import DOCUMENT, LINES
from sessiontree.dialects.storage import Storage
from sessiontree.paths import real_folder

SKIPPED_FOLDERS = frozenset(
    {"bin", "checkpoints", "images", "logs", "memory", "plans", "tasks", "tool-outputs", "tracker"}
)
_session = re.compile(r"[^/]+/chats/session-[^/]+\.jsonl?\Z")
_subagent = re.compile(r"([^/]+/chats)/([^/]+)/([^/.][^/]*)\.jsonl\Z")
_checkpoint = re.compile(r"[^/]+/(checkpoint-[^/]+)\.json\Z")
_MOST_PROJECTS = 1000


def session_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    return (os.path.join(_base(environment), "tmp"),)


def storage(path: str) -> Storage:
    return DOCUMENT if path.endswith(".json") else LINES


def classify_file(relative: str) -> SessionFile | None:
    if _session.match(relative):
        return SessionFile()
    subagent = _subagent.match(relative)
    if subagent:
        return SessionFile("subagent", id=subagent[3])
    checkpoint = _checkpoint.match(relative)
    return SessionFile(id=checkpoint[1]) if checkpoint else None


def session_cwds(root: str, read: Callable[[str], bytes | None]) -> dict[str, str]:
    found: dict[str, str] = {}
    for cwd, name in _projects(os.path.dirname(root), read).items():
        for folder in (name, hashlib.sha256(cwd.encode("utf-8", "surrogatepass")).hexdigest()):
            found[folder] = found[f"{folder}/chats"] = cwd
    return found


def find_destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    time = re.sub(r"[:.]", "-", meta.timestamp[:16])
    id = session_id(meta.id)
    name = f"session-{time}-{id[:8]}.jsonl"
    path = os.path.join(_base(environment), "tmp", _slug(meta.cwd), "chats", name)
    return Destination(path, ("gemini", "--resume", id))


def locate(destination: Destination, meta: SessionMeta, read: Callable[[str], bytes | None]) -> Destination:
    """Replace the folder with that of the project: its registered name, or the one that Gemini CLI will choose."""
    chats, name = os.path.split(destination.path)
    root = os.path.dirname(os.path.dirname(chats))
    projects = _projects(os.path.dirname(root), read)
    folder = projects.get(real_folder(meta.cwd)) or projects.get(meta.cwd)
    if folder is None:
        slug = _slug(meta.cwd)
        for number in itertools.islice(itertools.count(), _MOST_PROJECTS):
            folder = f"{slug}-{number}" if number else slug
            owner = (read(os.path.join(root, folder, ".project_root")) or b"").decode("utf-8", "replace").strip()
            if owner in ("", meta.cwd) and folder not in projects.values():
                break
    return msgspec.structs.replace(destination, path=os.path.join(root, folder or "project", "chats", name))


def _projects(base: str, read: Callable[[str], bytes | None]) -> dict[str, str]:
    projects: Any = parse_object(read(os.path.join(base, "projects.json")) or b"").get("projects")
    if not isinstance(projects, dict):
        return {}
    # The name becomes part of a path.
    return {cwd: name for cwd, name in projects.items() if isinstance(name, str) and re.match(r"[\w-]+\Z", name)}


def _slug(cwd: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", os.path.basename(cwd.rstrip("/")).lower()).strip("-")
    return name or "project"


def _base(environment: Mapping[str, str]) -> str:
    home = environment.get("GEMINI_CLI_HOME") or environment.get("HOME") or os.path.expanduser("~")
    return os.path.join(home, ".gemini")
