"""Where settings lie: `settings.json` in the home folder, `.sessiontree/settings.json` in a project."""

from __future__ import annotations

import os

from sessiontree import paths

FOLDER = ".sessiontree"
NAME = "settings.json"


def user_file(home: str | None = None) -> str:
    return os.path.join(home or paths.home(), NAME)


def find_project_file(cwd: str, home: str | None = None) -> str | None:
    """The nearest settings file from a folder upwards, not above its repository.

    Outside of a repository only the folder itself is looked at: what lies further up belongs to no project. The file of
    the user is never taken for a project's.
    """
    own = os.path.realpath(user_file(home))
    for folder in _folders(cwd):
        path = os.path.join(folder, FOLDER, NAME)
        if os.path.lexists(path) and os.path.realpath(path) != own:
            return path
    return None


def project_file_for_writing(cwd: str, home: str | None = None) -> str:
    """Where a project's settings are written: the file that is read, else one at the top of the repository."""
    return find_project_file(cwd, home) or os.path.join(_folders(cwd)[-1], FOLDER, NAME)


def _folders(cwd: str) -> list[str]:
    """A folder and those above it, up to the top of its repository."""
    start = os.path.realpath(cwd)
    folders = [start]
    while not os.path.lexists(os.path.join(folders[-1], ".git")):
        parent = os.path.dirname(folders[-1])
        if parent == folders[-1]:
            return [start]
        folders.append(parent)
    return folders
