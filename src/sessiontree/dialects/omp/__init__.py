"""The sessions of oh-my-pi and of its fork xcsh: Pi's line format, a title slot, more entry types, stricter contexts.

| module      | contents                                                   |
|-------------|------------------------------------------------------------|
| `dialect`   | the dialect, where it differs from Pi                      |
| `detect`    | detection of its files; the title slot                     |
| `context`   | which messages of a path are sent                          |
| `encoder`   | canonical entries -> lines; renaming a session             |
| `locations` | paths of sessions and blobs                                |
"""

from __future__ import annotations

from sessiontree.dialects.omp.context import RetriedTurn, without_dangling_calls, without_failed_turns
from sessiontree.dialects.omp.detect import is_title_slot
from sessiontree.dialects.omp.dialect import OMP, TRUNCATION_NOTICE, OhMyPi, is_truncated
from sessiontree.dialects.omp.locations import blob_folder, bucket_name, parent_session_kind

__all__ = [
    "OMP",
    "TRUNCATION_NOTICE",
    "OhMyPi",
    "RetriedTurn",
    "blob_folder",
    "bucket_name",
    "is_title_slot",
    "is_truncated",
    "parent_session_kind",
    "without_dangling_calls",
    "without_failed_turns",
]
