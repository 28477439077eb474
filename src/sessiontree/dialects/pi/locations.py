"""Where Pi's sessions are found: a folder per working folder below `sessions`, or one flat folder that was chosen."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.contract import SessionFile, Varied, is_session_name
from sessiontree.dialects.pi.places import find_destination

_CHOSEN = "PI_CODING_AGENT_SESSION_DIR"
_ANY = SessionMeta("any", "0", "/any")


def roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The agent's own folder; before it the flat one that was chosen, which does not make older sessions go away."""
    in_own = os.path.dirname(
        os.path.dirname(find_destination(_ANY, Varied(environment, PI_CODING_AGENT_SESSION_DIR="")).path)
    )
    if not environment.get(_CHOSEN):
        return (in_own,)
    return os.path.dirname(find_destination(_ANY, environment).path), in_own


def kind_of(relative: str) -> SessionFile | None:
    return SessionFile() if is_session_name(relative) and relative.count("/") <= 1 else None
