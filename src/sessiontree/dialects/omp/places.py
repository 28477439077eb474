"""Where oh-my-pi keeps sessions and blobs. Only names are made here, nothing is written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Literal

from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.dialects.pi.places import encoded, file_name, home_of, resolved

_PROFILE_NAME = r"[a-z0-9][a-z0-9._-]{0,63}(?<!\.)\Z"


def find_destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    home, temporary = home_of(environment), _temporary(environment)
    bucket = bucket_name(_real(meta.cwd), _real(home), _real(temporary))
    path = os.path.join(_sessions_folder(environment), bucket, file_name(meta))
    return Destination(path, ("omp", "--resume", meta.id))


def _sessions_folder(environment: Mapping[str, str]) -> str:
    """Below the agent's folder, or that of a profile; below XDG's folder for data, if oh-my-pi was moved there."""
    root = os.path.join(home_of(environment), environment.get("PI_CONFIG_DIR") or ".omp")
    profile = _profile(environment)
    chosen = environment.get("PI_CODING_AGENT_DIR")
    inside = ("profiles", profile) if profile else ()
    agent = os.path.join(root, *inside, "agent")
    if chosen and not profile and resolved(chosen) != agent:
        return os.path.join(resolved(chosen), "sessions")
    data = environment.get("XDG_DATA_HOME")
    if data and sys.platform in ("linux", "darwin"):
        moved = os.path.join(data, "omp", *inside)
        if os.path.exists(moved):
            return os.path.join(moved, "sessions")
    return os.path.join(agent, "sessions")


def _profile(environment: Mapping[str, str]) -> str | None:
    """The profile that is named, if the name is one that oh-my-pi takes; an empty name means the default one."""
    name = environment.get("OMP_PROFILE", environment.get("PI_PROFILE", "")).strip()
    return name if name != "default" and re.match(_PROFILE_NAME, name) else None


def _temporary(environment: Mapping[str, str]) -> str:
    found = next((environment[name] for name in ("TMPDIR", "TMP", "TEMP") if environment.get(name)), "/tmp")  # noqa: S108
    return found.rstrip("/") or "/"


def _real(path: str) -> str:
    try:
        return os.path.realpath(resolved(path))
    except OSError:
        return resolved(path)


def parent_session_kind(parent_session: str) -> Literal["id", "path"]:
    """How a header names its parent: by id after a fork, by the path of its file after a branch or for a sub-agent."""
    is_path = "/" in parent_session or "\\" in parent_session or parent_session.endswith(".jsonl")
    return "path" if is_path else "id"


def blob_folder(session_path: str) -> str | None:
    """The folder with the blobs of a session in the agent's own place; None for a file that lies elsewhere.

    Blobs lie flat in it, each named by its SHA-256. Sub-agents' files lie deeper and share the folder.
    """
    folder = os.path.dirname(session_path)
    while os.path.basename(folder) not in ("sessions", ""):
        folder = os.path.dirname(folder)
    return os.path.join(os.path.dirname(folder), "blobs") if os.path.basename(folder) else None


def bucket_name(cwd: str, home: str, temporary: str) -> str:
    """The folder below `sessions` for work in `cwd`. All three paths are absolute and real.

    Different folders may share a name; the header's cwd tells whose session it is.
    """
    for base, prefix in ((home, "-"), (temporary, "-tmp")):
        inside = _inside(base, cwd)
        if inside == "":
            return prefix
        if inside is not None and not inside.startswith(".."):
            return f"{prefix}{'' if prefix == '-' else '-'}{encoded(inside)}"
    return f"--{encoded(cwd[1:] if cwd[:1] in ('/', chr(92)) else cwd)}--"


def _inside(base: str, path: str) -> str | None:
    """The part of a path below a folder, empty for the folder itself; None when it is not below it."""
    if path == base:
        return ""
    base = base.rstrip("/\\")
    if path.startswith(base) and path[len(base) : len(base) + 1] in ("/", "\\"):
        return path[len(base) + 1 :]
    return None
