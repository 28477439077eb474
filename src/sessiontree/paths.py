"""Paths of sessiontree's own files, and finding a session file by its id.

Names from session content are never used unchecked. Ids are validated. Folder names consist of letters, digits and
hyphens plus a hash of the real path, so two projects never share a folder. Symbolic links in the sessions folder are
not followed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from sessiontree.core.ids import IdPrefixes, is_session_id, is_session_id_prefix
from sessiontree.errors import AmbiguousError, NotFoundError, UsageError

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:")
_FILE_NAME = r"[0-9TZ-]+_(?P<id>.+)\.jsonl\Z"


def is_address(text: str) -> bool:
    """Whether `$SESSIONTREE_HOME` names a repository, such as `postgresql://host/db`, rather than a folder."""
    return _ADDRESS.match(text) is not None and not os.path.lexists(text)


def home_address() -> str:
    """The home of sessions: `$SESSIONTREE_HOME`, a folder or the address of a repository, else the home folder."""
    chosen = os.environ.get("SESSIONTREE_HOME", "")
    return chosen if is_address(chosen) else home()


def home() -> str:
    """The home folder: `$SESSIONTREE_HOME` if that is a folder, else the platform's data folder.

    Sessions and blobs are in it, unless `home_address` is another place; settings and other files of the user always.
    """
    chosen = os.environ.get("SESSIONTREE_HOME")
    if chosen and not is_address(chosen):
        return os.path.abspath(os.path.expanduser(chosen))
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/sessiontree")
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(data, "sessiontree")


def cache_folder(environment: Mapping[str, str]) -> str:
    """The folder of what can be derived again: `$SESSIONTREE_CACHE`, else in the platform's cache folder."""
    chosen = environment.get("SESSIONTREE_CACHE")
    if chosen:
        path = os.path.abspath(os.path.expanduser(chosen))
        return os.path.dirname(path) if path.endswith(".sqlite") else path
    home = environment.get("HOME") or os.path.expanduser("~")
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Caches", "sessiontree")
    return os.path.join(environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), "sessiontree")


def sessions_folder(root: str) -> str:
    return os.path.join(root, "sessions")


def home_of_file(path: str) -> str | None:
    """The home folder of a session file, `<home>/sessions/<project>/<file>`; None for a file elsewhere."""
    sessions = os.path.dirname(os.path.dirname(os.path.abspath(path)))
    return os.path.dirname(sessions) if os.path.basename(sessions) == "sessions" else None


def blobs_folder(root: str) -> str:
    return os.path.join(root, "blobs")


def without_folders(search_path: str, folders: Iterable[str]) -> str:
    """A PATH without relative folders and those in the given ones: a project must not provide the programs."""
    kept = []
    for entry in search_path.split(os.pathsep):
        real = os.path.realpath(entry) if os.path.isabs(entry) else ""
        if real and not any(real == folder or real.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders):
            kept.append(entry)
    return os.pathsep.join(kept)


def check_folder(folder: str) -> str:
    """Return the path of a folder, which need not exist; `UsageError` if no folder can have it."""
    try:
        name = os.fsencode(folder)
    except UnicodeEncodeError:
        raise UsageError(f"{folder!r} cannot be a folder: it contains a lone surrogate") from None
    if b"\0" in name:
        raise UsageError(f"{folder!r} cannot be a folder: it contains a NUL byte")
    return folder


def real_folder(folder: str) -> str:
    """The real path of a folder, which need not exist; `UsageError` if no folder can have it."""
    return os.path.realpath(check_folder(folder))


def is_same_folder(left: str, right: str) -> bool:
    """Whether two paths lead to the same folder; false for one that no folder can have."""
    try:
        return os.path.realpath(left) == os.path.realpath(right)
    except ValueError:
        return False


def project_folder_name(cwd: str) -> str:
    """Folder name of a project: a readable name plus a short hash of the real path."""
    real = real_folder(cwd or os.sep)
    readable = re.sub(r"[\W\ud800-\udfff]+", "-", os.path.basename(real)).strip("-_")
    while len(readable.encode()) > 48:
        readable = readable[:-1]
    from hashlib import sha256  # slow to load, and only new sessions need it

    digest = sha256(real.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{readable or 'root'}-{digest}"


def check_session_id(id: str) -> str:
    """Return a valid session id; `UsageError` for any other text."""
    if not is_session_id(id):
        raise UsageError(f"{id!r} is not a valid session id: use letters, digits, '-', '_' and '.', no '..'")
    return id


def session_path(root: str, id: str, timestamp: str, cwd: str) -> str:
    """Path of a new session's file."""
    stamp = re.sub(r"[^0-9TZ]", "-", timestamp)
    folder = os.path.join(sessions_folder(root), project_folder_name(cwd))
    if os.path.islink(folder):
        raise UsageError(f"{folder}: is a symbolic link; sessions are not written through links")
    return os.path.join(folder, f"{stamp}_{check_session_id(id)}.jsonl")


def iter_session_files(root: str) -> Iterator[tuple[str, str]]:
    """Iterate over (session id, path) of the session files in the home folder, by their names; opens none."""
    try:
        folders = sorted(
            entry.path for entry in os.scandir(sessions_folder(root)) if entry.is_dir(follow_symlinks=False)
        )
    except FileNotFoundError:
        return
    for folder in folders:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            found = re.match(_FILE_NAME, entry.name)
            if found and entry.is_file(follow_symlinks=False):
                yield found["id"], entry.path


def find_session_file(root: str, wanted: str) -> str:
    """Find the file of a session by its id, or an unambiguous prefix of it."""
    return find_by_id(wanted, iter_session_files(root), sessions_folder(root))


def find_by_id(wanted: str, sessions: Iterable[tuple[str, str]], place: str) -> str:
    """Find a session among (id, location) by its id, or an unambiguous prefix of it."""
    if not wanted or not is_session_id_prefix(wanted):
        raise NotFoundError(f"{wanted!r} is neither a file nor a session id")
    found = [(id, location) for id, location in sessions if id.startswith(wanted)]
    exact = [location for id, location in found if id == wanted]
    if len(exact) == 1:
        return exact[0]
    if exact:
        shown = "\n".join(f"  {location}" for location in exact)
        raise AmbiguousError(f"{len(exact)} files have the session id {wanted!r}; use a path:\n{shown}", tuple(exact))
    if not found:
        raise NotFoundError(f"no session id in {place} starts with {wanted!r}")
    if len(found) > 1:
        ids = tuple(id for id, _ in found)
        shown = "\n".join(f"  {id}" for id in ids[:20])
        raise AmbiguousError(f"{wanted!r} matches {len(ids)} sessions; use a longer prefix:\n{shown}", ids)
    return found[0][1]


def short_id(id: str, known: Iterable[str]) -> str:
    """Shortest unambiguous prefix of a session id among the known ones, at least eight characters."""
    return IdPrefixes([*known]).shortest(id)


def name_of(root: str, id: str, path: str) -> str:
    """Shortest unambiguous argument for a session file: a prefix of its id if that finds the file, else its path."""
    short = short_id(id, (other for other, _ in iter_session_files(root)))
    try:
        return short if os.path.samefile(find_session_file(root, short), path) else path
    except (NotFoundError, AmbiguousError, OSError):  # not in the home folder, or two files have this id
        return path
