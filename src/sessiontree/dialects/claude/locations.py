"""Where transcripts are found below `projects`, and which of them are those of sub-agents.

<key>/<session>.jsonl                                      a session
<key>/<session>/subagents/agent-<id>.jsonl                 a sub-agent of it; also deeper, in `workflows/<run>/`
<key>/agent-<id>.jsonl                                     a sub-agent, up to 2.0; its lines name the session
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.claude.places import destination
from sessiontree.dialects.contract import SessionFile
from sessiontree.dialects.defaults import is_session_name

SKIPPED_FOLDERS = frozenset({"tool-results", "memory"})
_ANY = SessionMeta("any", "0", "/any")


def session_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    return (os.path.expanduser(os.path.dirname(os.path.dirname(destination(_ANY, environment).path))),)


def classify_file(relative: str) -> SessionFile | None:
    if not is_session_name(relative):
        return None
    parts = relative.split("/")
    name = parts[-1].removesuffix(".jsonl")
    if len(parts) == 2:
        return SessionFile("subagent", id=name) if name.startswith("agent-") else SessionFile()
    if len(parts) >= 4 and parts[2] == "subagents" and name.startswith("agent-"):
        return SessionFile("subagent", id=name, parent=f"{parts[0]}/{parts[1]}.jsonl")
    return None
