"""Where things are: the home folder, a folder per project, a file per session; and finding a session by its id.

Nothing in a name comes from session content unchecked: ids are checked, folder names are made of letters, digits and
hyphens plus a hash of the real path, so two projects never share a folder. Symbolic links inside the sessions folder
are not followed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

from sessiontree.core.entries import Header
from sessiontree.core.ids import SHORTEST_PREFIX, is_session_id, is_session_id_prefix
from sessiontree.errors import AmbiguousError, NotFoundError, UsageError

_FILE_NAME = r"[0-9TZ-]+_(?P<id>.+)\.jsonl\Z"


def home() -> str:
    """The folder that holds sessions and blobs: `$SESSIONTREE_HOME`, else the platform's data folder."""
    chosen = os.environ.get("SESSIONTREE_HOME")
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/sessiontree")
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(data, "sessiontree")


def sessions_folder(root: str) -> str:
    return os.path.join(root, "sessions")


def blobs_folder(root: str) -> str:
    return os.path.join(root, "blobs")


def project_folder_name(cwd: str) -> str:
    """A readable name plus a short hash of the real path."""
    try:
        real = os.path.realpath(cwd or os.sep)
    except ValueError as error:  # a NUL byte, or a character no file name can have
        raise UsageError(f"{cwd!r} cannot be a folder: {error}") from None
    readable = re.sub(r"[\W\ud800-\udfff]+", "-", os.path.basename(real)).strip("-_")
    while len(readable.encode()) > 48:
        readable = readable[:-1]
    from hashlib import sha256  # slow to load, and needed only for what is new

    digest = sha256(real.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{readable or 'root'}-{digest}"


def session_path(root: str, header: Header) -> str:
    """Where a new session's file goes."""
    if not is_session_id(header.id):
        raise UsageError(f"{header.id!r} cannot be a session id: letters, digits, '-', '_' and '.', no '..'")
    stamp = re.sub(r"[^0-9TZ]", "-", header.timestamp)
    folder = os.path.join(sessions_folder(root), project_folder_name(header.cwd))
    if os.path.islink(folder):
        raise UsageError(f"{folder}: is a symbolic link; sessions are not written through one")
    return os.path.join(folder, f"{stamp}_{header.id}.jsonl")


def iter_session_files(root: str) -> Iterator[tuple[str, str]]:
    """(session id, path) of every session file of the home folder, by name alone; nothing is opened."""
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
    """The file of the session with this id or unambiguous prefix of at least eight characters."""
    if not is_session_id_prefix(wanted):
        raise NotFoundError(f"{wanted!r} is neither a file nor a session id")
    found = [(id, path) for id, path in iter_session_files(root) if id.startswith(wanted)]
    exact = [path for id, path in found if id == wanted]
    if len(exact) == 1:
        return exact[0]
    if exact:
        shown = "\n".join(f"  {path}" for path in exact)
        raise AmbiguousError(f"{wanted!r} is the id of {len(exact)} files; give a path:\n{shown}", tuple(exact))
    if len(wanted) < SHORTEST_PREFIX:
        raise NotFoundError(
            f"{wanted!r} is no file, and too short for a session id (at least {SHORTEST_PREFIX} characters)"
        )
    if not found:
        raise NotFoundError(f"no session begins with {wanted!r} in {sessions_folder(root)}")
    if len(found) > 1:
        ids = tuple(id for id, _ in found)
        shown = "\n".join(f"  {id}" for id in ids[:20])
        raise AmbiguousError(f"{wanted!r} fits {len(ids)} sessions; give more of the id:\n{shown}", ids)
    return found[0][1]


def short_id(root: str, id: str) -> str:
    """The shortest prefix of at least eight characters that means this session and no other."""
    others = [other for other, _ in iter_session_files(root) if other != id]
    length = SHORTEST_PREFIX
    while length < len(id) and (id[length - 1] == "-" or any(other.startswith(id[:length]) for other in others)):
        length += 1
    return id[:length]


def name_of(root: str, id: str, path: str) -> str:
    """What means the session in this file and no other: the beginning of its id if that leads there, else the path."""
    short = short_id(root, id)
    try:
        return short if os.path.samefile(find_session_file(root, short), path) else path
    except (NotFoundError, AmbiguousError, OSError):  # it lies elsewhere, or a second file has its id
        return path
