"""Paths of native sessions: `<home>/sessions/<project>/<time>_<id>.jsonl`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.dialects.contract import SessionFile
from sessiontree.dialects.defaults import is_session_name
from sessiontree.dialects.pi.locations import absolute_path, expand_home, home_folder
from sessiontree.paths import is_address, session_path


def find_destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    path = session_path(_home(environment), meta.id, meta.timestamp, meta.cwd)
    return Destination(path, ("sessiontree", "chat", "--session", meta.id))


def session_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    return (os.path.join(_home(environment), "sessions"),)


def classify_file(relative: str) -> SessionFile | None:
    return SessionFile() if is_session_name(relative) and relative.count("/") == 1 else None


def _home(environment: Mapping[str, str]) -> str:
    """Like `paths.home`, for an environment other than this process's."""
    chosen = environment.get("SESSIONTREE_HOME")
    if chosen and not is_address(chosen):
        return absolute_path(expand_home(chosen, environment))
    if sys.platform == "darwin":
        return os.path.join(home_folder(environment), "Library", "Application Support", "sessiontree")
    data = environment.get("XDG_DATA_HOME") or os.path.join(home_folder(environment), ".local", "share")
    return os.path.join(data, "sessiontree")
