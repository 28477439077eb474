"""The last session of each terminal: one small file per terminal in the home folder.

Best effort: an unnamed terminal records nothing, and an unreadable file counts as missing.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping

from msgspec import Struct

from sessiontree import paths
from sessiontree.dialects.contract import Dialect
from sessiontree.stores.temporary_files import sweep_once, temporary_path

_FOLDER = "terminal-sessions"
_LARGEST = 16 * 1024

# In this order: inside a multiplexer, the variable of its pane comes first.
_VARIABLES = {
    "ZELLIJ_PANE_ID": "zellij",
    "TMUX_PANE": "tmux",
    "CMUX_SURFACE_ID": "cmux",
    "KITTY_WINDOW_ID": "kitty",
    "WEZTERM_PANE": "wezterm",
    "TERM_SESSION_ID": "apple",
    "WT_SESSION": "wt",
    "ITERM_SESSION_ID": "iterm",
    "WINDOWID": "x11",
}


class LastSession(Struct, frozen=True):
    """The folder and session that were last used in a terminal."""

    cwd: str
    path: str


def terminal_id(environment: Mapping[str, str] | None = None) -> str | None:
    """Name of this terminal: its device, else its own variable. None without a terminal."""
    return _terminal_name(environment, _safe)


def _terminal_name(environment: Mapping[str, str] | None, as_file_name: Callable[[str], str]) -> str | None:
    environment = os.environ if environment is None else environment
    device = _device()
    if device is not None:
        return as_file_name(device.removeprefix("/dev/"))
    for variable, prefix in _VARIABLES.items():
        value = environment.get(variable)
        if value:
            session = environment.get("ZELLIJ_SESSION_NAME", "") if prefix == "zellij" else ""
            return as_file_name("-".join(filter(None, (prefix, session, value))))
    return None


def record_last_session(
    path: str | os.PathLike[str],
    cwd: str | os.PathLike[str],
    *,
    home: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Record the session that this terminal works on. Called when one is opened for work; never raises.

    The folder's project is also recorded, so the session is found again after the folder has moved. Without a terminal,
    this does nothing.
    """
    name = terminal_id(environment)
    if name is None:
        return
    home = paths.home() if home is None else home
    try:
        where, session = os.path.abspath(os.fspath(cwd)), os.path.abspath(os.fspath(path))
        if "\n" not in where and "\n" not in session:
            _write(home, name, os.fsencode(f"{where}\n{session}\n"))
            _record_project(home, where)
    except (OSError, ValueError):
        return  # not writable, or an invalid file name


def _write(home: str, name: str, text: bytes) -> None:
    folder = os.path.join(home, _FOLDER)
    unfinished = temporary_path(os.path.join(folder, name))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    sweep_once(folder)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)
    # Renamed into place, so that another command never reads an incomplete file.
    os.replace(unfinished, os.path.join(folder, name))


def _record_project(home: str, where: str) -> None:
    from sessiontree.library.projects import Projects

    Projects(home).record([where])


def find_last_session(home: str | None = None, environment: Mapping[str, str] | None = None) -> LastSession | None:
    """The last session of this terminal, if its file still exists, whether we or a client recorded it last."""
    name = terminal_id(environment)
    if name is None:
        return None
    own = os.path.join(paths.home() if home is None else home, _FOLDER, name)
    # Clients only replace characters that a path cannot have.
    raw_name = _terminal_name(environment, lambda text: text.replace("/", "-")) or name
    theirs = [os.path.join(folder, raw_name) for folder in _client_folders(environment)]
    found = [entry for entry in map(_read, [own, *theirs]) if entry is not None]
    return max(found, key=lambda entry: entry[0])[1] if found else None


def _client_folders(environment: Mapping[str, str] | None) -> list[str]:
    from sessiontree import plugins

    folders: list[str] = []
    for name in plugins.names("dialects"):
        dialect: Dialect = plugins.load("dialects", name)
        if dialect.client.records_terminals:
            roots = dialect.session_roots(os.environ if environment is None else environment)
            folders += [os.path.join(os.path.dirname(root), _FOLDER) for root in roots]
    return folders


def _read(path: str) -> tuple[float, LastSession] | None:
    """The time and content of a file, if the session exists."""
    try:
        with open(path, "rb") as file:
            time, lines = os.fstat(file.fileno()).st_mtime, os.fsdecode(file.read(_LARGEST)).splitlines()
    except OSError:
        return None
    if len(lines) < 2 or "\x00" in lines[1] or not os.path.isfile(lines[1]):
        return None
    return time, LastSession(lines[0], lines[1])


def _device() -> str | None:
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        try:
            if stream is not None and stream.isatty():
                return os.ttyname(stream.fileno())
        except (OSError, ValueError):
            continue  # closed, or not a terminal
    return None


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip(".")[:120] or "terminal"
