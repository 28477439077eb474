"""Paths of settings files: `settings.json` in the home folder, `.sessiontree/settings.json` in a project."""

from __future__ import annotations

import os

from sessiontree import paths

FOLDER = ".sessiontree"
NAME = "settings.json"


def user_file(home: str | None = None) -> str:
    return os.path.join(home or paths.home(), NAME)


def find_project_file(cwd: str, home: str | None = None) -> str | None:
    """Find the nearest settings file in a folder or its parents, up to the root of its repository.

    Outside a repository only the folder itself is checked. The user's file is never used as a project's.
    """
    own = os.path.realpath(user_file(home))
    for folder in _folders(cwd):
        path = os.path.join(folder, FOLDER, NAME)
        if os.path.lexists(path) and os.path.realpath(path) != own:
            return path
    return None


def project_file_for_writing(cwd: str, home: str | None = None) -> str:
    """The file to write a project's settings to: the file that is read, else a new one at the repository's root."""
    return find_project_file(cwd, home) or os.path.join(_folders(cwd)[-1], FOLDER, NAME)


def _folders(cwd: str) -> list[str]:
    """A folder and its parents up to the repository's root."""
    start = os.path.realpath(cwd)
    folders = [start]
    while not os.path.lexists(os.path.join(folders[-1], ".git")):
        parent = os.path.dirname(folders[-1])
        if parent == folders[-1]:
            return [start]
        folders.append(parent)
    return folders
