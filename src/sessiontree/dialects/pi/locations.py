"""Paths of Pi's sessions: a folder per working directory below `sessions`, or one flat folder chosen by the user."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from sessiontree.core.ids import is_session_id
from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.dialects.contract import SessionFile
from sessiontree.dialects.defaults import is_session_name
from sessiontree.errors import UsageError
from sessiontree.paths import check_folder


def find_destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    folder = _chosen_folder(environment) or os.path.join(_own_folder(environment), folder_name(meta.cwd))
    path = os.path.join(folder, file_name(meta))
    # Resume by path: Pi treats an id as a prefix and resumes the first session that matches.
    return Destination(path, ("pi", "--session", path))


def session_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The user's chosen folder, if any, and the agent's own, which may still hold older sessions."""
    own, chosen = _own_folder(environment), _chosen_folder(environment)
    return (own,) if chosen is None else (chosen, own)


def classify_file(relative: str) -> SessionFile | None:
    return SessionFile() if is_session_name(relative) and relative.count("/") <= 1 else None


def _chosen_folder(environment: Mapping[str, str]) -> str | None:
    chosen = environment.get("PI_CODING_AGENT_SESSION_DIR")
    return absolute_path(expand_home(chosen, environment)) if chosen else None


def _own_folder(environment: Mapping[str, str]) -> str:
    agent = environment.get("PI_CODING_AGENT_DIR") or os.path.join(home_folder(environment), ".pi", "agent")
    return os.path.join(absolute_path(expand_home(agent, environment)), "sessions")


def folder_name(cwd: str) -> str:
    """The folder below `sessions` for a working directory. Different directories may share a name."""
    path = absolute_path(cwd)
    return f"--{encode_separators(path[1:] if path[:1] in ('/', chr(92)) else path)}--"


def file_name(meta: SessionMeta) -> str:
    """File name of a session: timestamp and id, checked so that it cannot leave the folder."""
    if not is_session_id(meta.id):
        raise UsageError(f"{meta.id!r} cannot be a session id: letters, digits, '-', '_' and '.', no '..'")
    return f"{re.sub(r'[^0-9A-Za-z+-]', '-', meta.timestamp)}_{meta.id}.jsonl"


def encode_separators(path: str) -> str:
    return re.sub(r"[/\\:]", "-", path)


def absolute_path(path: str) -> str:
    """An absolute path without `.` and `..`; symbolic links are not followed."""
    found = os.path.abspath(check_folder(path))
    return "/" + found.lstrip("/") if found.startswith("//") else found


def expand_home(path: str, environment: Mapping[str, str]) -> str:
    return home_folder(environment) + path[1:] if path == "~" or path.startswith("~/") else path


def home_folder(environment: Mapping[str, str]) -> str:
    return environment.get("HOME") or os.path.expanduser("~")
