"""Settings from the user's file, the project's file, the environment and the caller.

    text (JSON with comments) -> values by key (layers) -> one `Settings`, and the source of each value

`load_settings` is the entry point. The content of a file never makes it fail. An unknown key, a value of the wrong type
or invalid JSON becomes a `Notice`, and the other values are used. A project's file may come with a repository, so it
cannot set who receives the conversation (see `known`).
"""

from __future__ import annotations

from sessiontree.settings.files import find_project_file, project_file_for_writing, user_file
from sessiontree.settings.known import (
    BranchSummaries,
    Compaction,
    CompactionOverride,
    Prune,
    Retry,
    Setting,
    Settings,
    iter_settings,
)
from sessiontree.settings.loader import Loaded, Notice, Source, load_settings

__all__ = [
    "BranchSummaries",
    "Compaction",
    "CompactionOverride",
    "Loaded",
    "Notice",
    "Prune",
    "Retry",
    "Setting",
    "Settings",
    "Source",
    "find_project_file",
    "iter_settings",
    "load_settings",
    "project_file_for_writing",
    "user_file",
]
