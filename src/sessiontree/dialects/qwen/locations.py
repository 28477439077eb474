"""Paths of Qwen Code's sessions.

projects/<project>/chats/<session>.jsonl                     a session
projects/<project>/chats/archive/<session>.jsonl             an archived session
projects/<project>/subagents/<session>/agent-<id>.jsonl      a sub-agent of it
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping

from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.dialects.claude.locations import generate_uuid
from sessiontree.dialects.contract import SessionFile
from sessiontree.dialects.defaults import is_session_name

_uuid = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-5][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}\Z")


def session_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    return (os.path.join(_runtime_folder(environment), "projects"),)


def _runtime_folder(environment: Mapping[str, str]) -> str:
    home = environment.get("HOME") or os.path.expanduser("~")
    chosen = environment.get("QWEN_RUNTIME_DIR") or environment.get("QWEN_HOME")
    return os.path.abspath(chosen or os.path.join(home, ".qwen"))


def classify_file(relative: str) -> SessionFile | None:
    if not is_session_name(relative):
        return None
    match relative.split("/"):
        case [_, "chats", name] | [_, "chats", "archive", name]:
            return SessionFile(id=name.removesuffix(".jsonl"))
        case [project, "subagents", session, name]:
            parent = f"{project}/chats/{session}.jsonl"
            return SessionFile("subagent", id=name.removesuffix(".jsonl"), parent=parent)
        case _:
            return None


def find_destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    id = session_id(meta.id)
    (root,) = session_roots(environment)
    path = os.path.join(root, project_folder_name(meta.cwd), "chats", f"{id}.jsonl")
    return Destination(path, ("qwen", "--resume", id))


def project_folder_name(cwd: str) -> str:
    """The folder below `projects` for a working directory. Different directories may share a name."""
    return re.sub(r"[^a-zA-Z0-9]", "-", cwd)


def session_id(id: str) -> str:
    """An id that Qwen Code accepts, derived from the original id if that is not one."""
    return id if is_accepted(id) else generate_uuid(_namespace(), id)


def is_accepted(id: str) -> bool:
    """Whether Qwen Code accepts an id: a UUID of a version up to 5. Others are taken for the title of a session."""
    return _uuid.match(id) is not None


@functools.cache
def _namespace() -> bytes:
    from uuid import NAMESPACE_URL, uuid5

    return uuid5(NAMESPACE_URL, "sessiontree:qwen").bytes
