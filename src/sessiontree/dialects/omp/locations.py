"""Where the sessions of oh-my-pi and xcsh are found, and what lies beside them.

<bucket>/<time>_<id>.jsonl                      a session
<bucket>/<time>_<id>/<agent>.jsonl              a sub-agent of it, which may have a folder of its own in turn
<bucket>/<time>_<id>/.draft-only-session        nothing was sent yet
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.contract import SessionFile, Varied, is_session_name
from sessiontree.dialects.omp.places import find_destination
from sessiontree.dialects.pi.places import home_of

_ANY = SessionMeta("any", "0", "/any")
_DRAFT = ".draft-only-session"


def roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The folder of oh-my-pi as its variables say, the one below XDG's that may take its place, and that of xcsh."""
    home, data = home_of(environment), environment.get("XDG_DATA_HOME")
    own = os.path.dirname(os.path.dirname(find_destination(_ANY, Varied(environment, XDG_DATA_HOME="")).path))
    config, agent = os.path.join(home, environment.get("PI_CONFIG_DIR") or ".omp"), os.path.dirname(own)
    inside = os.path.relpath(os.path.dirname(agent), config)
    moved = [os.path.normpath(os.path.join(data, "omp", inside, "sessions"))] if data and inside[:2] != ".." else []
    return own, *moved, os.path.join(home, ".xcsh", "agent", "sessions")


def kind_of(relative: str) -> SessionFile | None:
    if not is_session_name(relative):
        return None
    folder, _, name = relative.rpartition("/")
    if "/" in folder:
        return SessionFile("subagent", parent=f"{folder}.jsonl")
    return SessionFile(draft_marker=os.path.join(folder, name.removesuffix(".jsonl"), _DRAFT))
