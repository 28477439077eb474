"""Paths of OpenCode's sessions.

    <data>/opencode.db                              the database; other channels have opencode-<channel>.db
    <data>/storage/session/<project>/<id>.json      sessions of versions before 1.2, with their messages beside it
    <data>/project/<folder>/storage/session/info/<id>.json    sessions of the first versions

A new session is written to a file in our own home folder, which `opencode import` then reads.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.dialects.contract import SessionFile
from sessiontree.dialects.opencode.documents import EXPORT, FOLDERS
from sessiontree.dialects.opencode.ids import session_id
from sessiontree.dialects.opencode.rows import DATABASE
from sessiontree.dialects.storage import Storage
from sessiontree.paths import is_address

SKIPPED_FOLDERS = frozenset(
    {"bin", "log", "message", "part", "repos", "session_diff", "session_share", "snapshot", "todo", "tool-output"}
)
_database = re.compile(r"opencode(?:-[\w.-]+)?\.db\Z")
_folder_session = re.compile(r"(?:\A|/)storage/session/[^/]+/[^/.][^/]*\.json\Z")


def session_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    data = _data_folder(environment)
    database = _database_path(environment, data)
    return (data,) if os.path.dirname(database) == data else (data, os.path.dirname(database))


def storage(path: str) -> Storage:
    if path.endswith(".db"):
        return DATABASE
    return FOLDERS if _folder_session.search(path) else EXPORT


def classify_file(root: str, relative: str) -> SessionFile | None:
    if "/" not in relative:
        # Another folder is a root only because $OPENCODE_DB names a database in it.
        is_own = bool(_database.match(relative)) or os.path.basename(root) != "opencode"
        return SessionFile() if relative.endswith(".db") and is_own else None
    return SessionFile() if _folder_session.search(relative) else None


def find_destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    data = _data_folder(environment)
    id = session_id(meta.id)
    resume = ("opencode", "--session", id)
    database = _database_path(environment, data)
    if meta.origin == f"{database}#{id}":
        return Destination(database, resume)  # it is in the client's database already
    path = os.path.join(_own_home(environment), "imports", f"{id}.json")
    return Destination(path, resume, ("opencode", "import", path))


def _data_folder(environment: Mapping[str, str]) -> str:
    data = environment.get("XDG_DATA_HOME") or os.path.join(_home(environment), ".local", "share")
    return os.path.join(data, "opencode")


def _database_path(environment: Mapping[str, str], data: str) -> str:
    chosen = environment.get("OPENCODE_DB")
    return os.path.join(data, chosen) if chosen and chosen != ":memory:" else os.path.join(data, "opencode.db")


def _home(environment: Mapping[str, str]) -> str:
    return environment.get("HOME") or os.path.expanduser("~")


def _own_home(environment: Mapping[str, str]) -> str:
    chosen = environment.get("SESSIONTREE_HOME")
    if chosen and not is_address(chosen):
        return os.path.abspath(os.path.expanduser(chosen))
    if sys.platform == "darwin":
        return os.path.join(_home(environment), "Library", "Application Support", "sessiontree")
    data = environment.get("XDG_DATA_HOME") or os.path.join(_home(environment), ".local", "share")
    return os.path.join(data, "sessiontree")
