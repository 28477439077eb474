"""Which sessions a query is about, by its filters."""

from __future__ import annotations

import os
from functools import partial
from operator import eq
from typing import TYPE_CHECKING

from sessiontree.library.summary import Summary
from sessiontree.search.matcher import chosen
from sessiontree.search.query_parser import Filters

if TYPE_CHECKING:
    from sessiontree.library.library import Library


def sessions_asked(library: Library, filters: Filters, project: str | os.PathLike[str] | None) -> list[Summary]:
    """The sessions and sub-agents that may have what is asked for; `project` is a folder of the project they are of."""
    found = library.sessions(project=project, include_subagents=True, since=filters.since)
    if not filters.agent and not filters.project and filters.before is None:
        return found
    return [
        one
        for one in found
        if chosen(filters.agent, partial(eq, one.agent))
        and chosen(filters.project, partial(is_of_folder, one.cwd))
        and (filters.before is None or one.created is None or one.created < filters.before)
    ]


def is_of_folder(cwd: str, wanted: str) -> bool:
    """A whole path, a folder above it, or any part of its name."""
    asked = wanted.rstrip("/").lower()
    here = cwd.lower()
    return here == asked or here.startswith(f"{asked}/") or asked in os.path.basename(here)
