"""Where Pi looks for sessions. Only names are made here, nothing is written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from sessiontree.core.ids import is_session_id
from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.errors import UsageError


def find_destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    """A folder of sessions that was chosen is flat; in the agent's own folder each working folder has one."""
    chosen = environment.get("PI_CODING_AGENT_SESSION_DIR")
    if chosen:
        folder = resolved(expanded(chosen, environment))
    else:
        agent = environment.get("PI_CODING_AGENT_DIR") or os.path.join(home_of(environment), ".pi", "agent")
        folder = os.path.join(resolved(expanded(agent, environment)), "sessions", folder_name(meta.cwd))
    path = os.path.join(folder, file_name(meta))
    # By its path: Pi takes an id for the beginning of one, and the first that fits.
    return Destination(path, ("pi", "--session", path))


def folder_name(cwd: str) -> str:
    """The folder below `sessions` for work in `cwd`. Different folders may share a name."""
    path = resolved(cwd)
    return f"--{encoded(path[1:] if path[:1] in ('/', chr(92)) else path)}--"


def file_name(meta: SessionMeta) -> str:
    """Time and id, with nothing in it that could leave the folder."""
    if not is_session_id(meta.id):
        raise UsageError(f"{meta.id!r} cannot be a session id: letters, digits, '-', '_' and '.', no '..'")
    return f"{re.sub(r'[^0-9A-Za-z+-]', '-', meta.timestamp)}_{meta.id}.jsonl"


def encoded(path: str) -> str:
    return re.sub(r"[/\\:]", "-", path)


def resolved(path: str) -> str:
    """An absolute path without dots; links in it are not followed."""
    if "\x00" in path:
        raise UsageError(f"{path!r} cannot be a folder: it holds a NUL byte")
    found = os.path.abspath(path)
    return "/" + found.lstrip("/") if found.startswith("//") else found


def expanded(path: str, environment: Mapping[str, str]) -> str:
    return home_of(environment) + path[1:] if path == "~" or path.startswith("~/") else path


def home_of(environment: Mapping[str, str]) -> str:
    return environment.get("HOME") or os.path.expanduser("~")
