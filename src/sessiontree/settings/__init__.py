"""Settings: one file of the user, one of a project, the environment, and what a caller says.

    text (JSON with comments) -> values by key (layers) -> one `Settings`, and where each value comes from

`load_settings` is the door. Reading never fails for what a file holds: a key that is not known, a value of the wrong
type or a file that is no JSON becomes a `Notice`, and everything else still counts. What a project's file may say is
marked at each setting (see `known`): it came with somebody's repository, so it never chooses who gets the conversation.
"""

from __future__ import annotations

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
from sessiontree.settings.paths import find_project_file, project_file_for_writing, user_file

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
