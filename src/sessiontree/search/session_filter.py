"""Select the sessions that a query applies to."""

from __future__ import annotations

import os
from functools import partial
from operator import eq
from typing import TYPE_CHECKING

from sessiontree.library.summary import Summary
from sessiontree.search.query import Filters

if TYPE_CHECKING:
    from sessiontree.archive.tags import SessionTags
    from sessiontree.library.library import Library


def select_sessions(library: Library, filters: Filters, project: str | os.PathLike[str] | None) -> list[Summary]:
    """Sessions and sub-agents that pass the filters on sessions. `project` is a folder of a project."""
    found = library.sessions(project=project, include_subagents=True, since=filters.since)
    if filters.tag or filters.pinned is not None:
        from sessiontree.archive.tags import tags_of_summaries  # imports more than the rest of a search

        tags = tags_of_summaries(library.documents, found)
        found = [summary for summary in found if _matches_tags(filters, tags.get(summary.ref))]
    return filter_sessions(found, filters)


def filter_sessions(found: list[Summary], filters: Filters) -> list[Summary]:
    """Keep the sessions that pass the filters on sessions, except for those on tags."""
    if filters.since is not None:
        found = [summary for summary in found if summary.recency >= filters.since]
    if not filters.agent and not filters.project and not filters.session and filters.before is None:
        return found
    # Many sessions, few agents and folders: each is tested once.
    agents = {agent for agent in {each.agent for each in found} if filters.agent.accepts(partial(eq, agent))}
    folders = {cwd for cwd in {each.cwd for each in found} if filters.project.accepts(partial(is_in_project, cwd))}
    return [
        summary
        for summary in found
        if summary.agent in agents
        and summary.cwd in folders
        and filters.session.accepts(summary.id.startswith)
        and (filters.before is None or summary.created is None or summary.created < filters.before)
    ]


def _matches_tags(filters: Filters, tags: SessionTags | None) -> bool:
    own = () if tags is None else tags.tags
    is_pinned = tags is not None and tags.pinned
    return filters.tag.accepts(own.__contains__) and filters.pinned in (None, is_pinned)


def is_in_project(cwd: str, wanted: str) -> bool:
    """Whether a folder is the given one, below it, or has it as part of its name."""
    folder = wanted.rstrip("/").lower()
    here = cwd.lower()
    return here == folder or here.startswith(f"{folder}/") or folder in os.path.basename(here)
