"""Paths of sessions, sub-agents and blobs of oh-my-pi and xcsh, below the folder `sessions`:

<bucket>/<time>_<id>.jsonl                      a session
<bucket>/<time>_<id>/<agent>.jsonl              a sub-agent of it, which may have its own folder in turn
<bucket>/<time>_<id>/.draft-only-session        nothing was sent yet
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Literal

from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.dialects.contract import SessionFile
from sessiontree.dialects.defaults import is_session_name
from sessiontree.dialects.pi.locations import absolute_path, encode_separators, file_name, home_folder

_DRAFT = ".draft-only-session"
_PROFILE_NAME = r"[a-z0-9][a-z0-9._-]{0,63}(?<!\.)\Z"


def find_destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    home, temporary = home_folder(environment), _temporary_folder(environment)
    bucket = bucket_name(_real_path(meta.cwd), _real_path(home), _real_path(temporary))
    if is_of_xcsh(meta.origin):
        return Destination(os.path.join(_xcsh_sessions(home), bucket, file_name(meta)), ("xcsh", "--resume", meta.id))
    folder = _sessions_folder(environment, environment.get("XDG_DATA_HOME"))
    return Destination(os.path.join(folder, bucket, file_name(meta)), ("omp", "--resume", meta.id))


def session_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    """oh-my-pi's own folder, the XDG data folder that may replace it, and the folder of xcsh."""
    home, data = home_folder(environment), environment.get("XDG_DATA_HOME")
    own = _sessions_folder(environment, None)
    config, agent = os.path.join(home, environment.get("PI_CONFIG_DIR") or ".omp"), os.path.dirname(own)
    inside = os.path.relpath(os.path.dirname(agent), config)
    moved = [os.path.normpath(os.path.join(data, "omp", inside, "sessions"))] if data and inside[:2] != ".." else []
    return own, *moved, _xcsh_sessions(home)


def is_of_xcsh(location: str | None) -> bool:
    """Whether a session file is in the folder of xcsh, which reads only files with the header first."""
    return location is not None and "/.xcsh/" in location


def _xcsh_sessions(home: str) -> str:
    return os.path.join(home, ".xcsh", "agent", "sessions")


def classify_file(relative: str) -> SessionFile | None:
    if not is_session_name(relative):
        return None
    folder, _, name = relative.rpartition("/")
    if "/" in folder:
        return SessionFile("subagent", parent=f"{folder}.jsonl")
    return SessionFile(draft_marker=os.path.join(folder, name.removesuffix(".jsonl"), _DRAFT))


def _sessions_folder(environment: Mapping[str, str], data: str | None) -> str:
    """The sessions folder of the agent or a profile; in the XDG folder `data` if oh-my-pi was moved there."""
    root = os.path.join(home_folder(environment), environment.get("PI_CONFIG_DIR") or ".omp")
    profile = _profile(environment)
    chosen = environment.get("PI_CODING_AGENT_DIR")
    inside = ("profiles", profile) if profile else ()
    agent = os.path.join(root, *inside, "agent")
    if chosen and not profile and absolute_path(chosen) != agent:
        return os.path.join(absolute_path(chosen), "sessions")
    if data and sys.platform in ("linux", "darwin"):
        moved = os.path.join(data, "omp", *inside)
        if os.path.exists(moved):
            return os.path.join(moved, "sessions")
    return os.path.join(agent, "sessions")


def _profile(environment: Mapping[str, str]) -> str | None:
    """The named profile, if oh-my-pi accepts the name; an empty name means the default profile."""
    name = environment.get("OMP_PROFILE", environment.get("PI_PROFILE", "")).strip()
    return name if name != "default" and re.match(_PROFILE_NAME, name) else None


def _temporary_folder(environment: Mapping[str, str]) -> str:
    found = next((environment[name] for name in ("TMPDIR", "TMP", "TEMP") if environment.get(name)), "/tmp")  # noqa: S108
    return found.rstrip("/") or "/"


def _real_path(path: str) -> str:
    try:
        return os.path.realpath(absolute_path(path))
    except OSError:
        return absolute_path(path)


def parent_session_kind(parent_session: str) -> Literal["id", "path"]:
    """How a header names its parent: by id after a fork, by its file's path after a branch or for a sub-agent."""
    is_path = "/" in parent_session or "\\" in parent_session or parent_session.endswith(".jsonl")
    return "path" if is_path else "id"


def blob_folder(session_path: str) -> str | None:
    """The folder with the blobs of a session below `sessions`; None for a file elsewhere.

    It is flat, each blob named by its SHA-256. Sub-agents' files are deeper and share it.
    """
    folder = os.path.dirname(session_path)
    while os.path.basename(folder) not in ("sessions", ""):
        folder = os.path.dirname(folder)
    return os.path.join(os.path.dirname(folder), "blobs") if os.path.basename(folder) else None


def bucket_name(cwd: str, home: str, temporary: str) -> str:
    """The folder below `sessions` for a working directory. All three paths are absolute and real.

    Different directories may share a name; the header's cwd decides.
    """
    for base, prefix in ((home, "-"), (temporary, "-tmp")):
        inside = _relative_to(base, cwd)
        if inside == "":
            return prefix
        if inside is not None and not inside.startswith(".."):
            return f"{prefix}{'' if prefix == '-' else '-'}{encode_separators(inside)}"
    return f"--{encode_separators(cwd[1:] if cwd[:1] in ('/', chr(92)) else cwd)}--"


def _relative_to(base: str, path: str) -> str | None:
    """The part of a path below a folder, empty for the folder itself; None when it is not below it."""
    if path == base:
        return ""
    base = base.rstrip("/\\")
    if path.startswith(base) and path[len(base) : len(base) + 1] in ("/", "\\"):
        return path[len(base) + 1 :]
    return None
