"""The sessions of oh-my-pi and of xcsh, a fork of it: Pi's shape with a title slot, more types, and stricter contexts.

| module    | what it does                                               |
|-----------|------------------------------------------------------------|
| `dialect` | read lines, find the leaf, build the context, tell         |
| `marks`   | tell its files from Pi's; the title slot                   |
| `sending` | what of a path is sent to a model                          |
| `encoder`  | write lines, and rename a session where the client looks    |
| `places`  | where sessions and blobs lie                               |
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
