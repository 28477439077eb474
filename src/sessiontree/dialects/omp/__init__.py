"""The sessions of oh-my-pi and of its fork xcsh: Pi's line format, a title slot, more entry types, stricter contexts.

| module      | contents                                                   |
|-------------|------------------------------------------------------------|
| `dialect`   | the dialect, where it differs from Pi                      |
| `header`    | detection of its files; the title slot; titles             |
| `context`   | which messages of a path are sent                          |
| `encoder`   | canonical entries -> lines; renaming a session             |
| `locations` | paths of sessions and blobs                                |
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.dialects.omp.client import CLIENT
    from sessiontree.dialects.omp.context import RetriedTurn, without_dangling_calls, without_failed_turns
    from sessiontree.dialects.omp.dialect import OMP, TRUNCATION_NOTICE, OhMyPi
    from sessiontree.dialects.omp.header import is_title_slot
    from sessiontree.dialects.omp.locations import blob_folder, bucket_name, parent_session_kind

# Imported on first use: a search needs the client alone.
_MODULES = {
    "CLIENT": "client",
    "OMP": "dialect",
    "TRUNCATION_NOTICE": "dialect",
    "OhMyPi": "dialect",
    "RetriedTurn": "context",
    "blob_folder": "locations",
    "bucket_name": "locations",
    "is_title_slot": "header",
    "parent_session_kind": "locations",
    "without_dangling_calls": "context",
    "without_failed_turns": "context",
}

__all__ = [
    "CLIENT",
    "OMP",
    "TRUNCATION_NOTICE",
    "OhMyPi",
    "RetriedTurn",
    "blob_folder",
    "bucket_name",
    "is_title_slot",
    "parent_session_kind",
    "without_dangling_calls",
    "without_failed_turns",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sessiontree.dialects.omp' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sessiontree.dialects.omp.{_MODULES[name]}"), name)
