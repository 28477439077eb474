"""Queries about past sessions: plain values, limited in size, marked as untrusted.

Invalid arguments raise one of the package's errors, with a message for the model. A session is named by its id, a
prefix of the id, or its path. It has to be in the library: no other file is ever read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sessiontree.core.durations import UNITS
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.library.library import Library
from sessiontree.library.summary import Summary
from sessiontree.mcp_server.decisions import recent_decisions
from sessiontree.mcp_server.limits import (
    MAX_ITEMS,
    MAX_NEIGHBOR_TEXT,
    MAX_NEIGHBORS,
    MAX_QUERY,
    MAX_TEXT,
    limit_result,
    sanitize,
    sanitize_name,
    slice_text,
)
from sessiontree.search import Hit, search
from sessiontree.search.query_parser import parse
from sessiontree.views.listing import iso
from sessiontree.views.passages import entry_text, find_passage, path_through, speaker
from sessiontree.views.search_results import BRANCHES

_MAX_OFFSET = 10_000


def find_text(
    library: Library,
    query: str,
    *,
    agent: str = "",
    project: str = "",
    limit: int = 10,
    offset: int = 0,
    refresh: bool = True,
) -> dict[str, Any]:
    """Search all sessions, the best sessions first."""
    if not query.strip():
        raise UsageError("query: expected search words, such as: parser timeout since:2w")
    if len(query) > MAX_QUERY:
        raise UsageError(f"query: {len(query)} characters; at most {MAX_QUERY} are allowed")
    limit, offset = _page(limit, offset)
    results = search(
        library,
        query,
        agent=agent or None,
        project=_folder(project) if project else None,
        limit=limit,
        offset=offset,
        refresh="auto" if refresh else "none",
    )
    hits = list(results)
    is_end = results.next_offset is None and (hits or not offset)
    answer = {
        "query": sanitize(query),
        "state": results.state,
        "total": offset + len(hits) if is_end else None,
        "offset": offset,
        "unindexed": results.unindexed,
        "complete": results.is_complete,
        "unsearched": {"sessions": results.unsearched.sessions, "bytes": results.unsearched.size},
        "unreadable": len(results.unreadable),
        "notes": [sanitize_name(note) for note in results.notes[:10]],
    }
    return limit_result(answer, "hits", [_hit(hit) for hit in hits], results.next_offset)


def read_passage(
    library: Library, session: str, entry: str = "", *, around: int = 2, offset: int = 0
) -> dict[str, Any]:
    """Read an entry in full, in parts if it is long, with its neighbors; without an id, the current entry."""
    from sessiontree.session.open import open

    summary = known_session(library, session)
    opened = open(summary.ref, dialect=summary.agent)
    id = opened.find_entry(entry) if entry else opened.leaf
    if id is None:
        raise NotFoundError(f"{summary.id}: this session is empty")
    around = min(max(around, 0), MAX_NEIGHBORS)
    passage = find_passage(opened, id, around)
    path = path_through(opened, id)
    described: list[dict[str, Any]] = []
    for number, found in enumerate(passage.entries):
        is_asked = number == passage.at
        text = sanitize(entry_text(found))
        start = min(max(offset, 0), len(text)) if is_asked else 0
        piece, more = slice_text(text, start, MAX_TEXT if is_asked else MAX_NEIGHBOR_TEXT)
        described.append(
            {
                "entry": sanitize_name(found.id),
                "asked": is_asked,
                "role": sanitize_name(speaker(found)),
                "time": sanitize_name(found.timestamp),
                "text": piece,
                "length": len(text),
                "nextOffset": more,
            }
        )
    first, last = passage.before, len(path) - passage.after - 1
    answer = {
        "session": _session(summary),
        "isActive": id in (opened.path_ids() if opened.leaf is not None else []),
        "previousEntry": sanitize_name(path[first - 1]) if first > 0 else None,
        "nextEntry": sanitize_name(path[last + 1]) if last + 1 < len(path) else None,
    }
    return _drop_neighbors(answer, described)


def list_sessions(
    library: Library, *, project: str = "", agent: str = "", since: str = "", limit: int = 20, offset: int = 0
) -> dict[str, Any]:
    """List sessions, newest first; with `project`, those of a folder's project."""
    limit, offset = _page(limit, offset)
    found = library.sessions(
        agent=agent or None, project=_folder(project) if project else None, since=_since(since) if since else None
    )
    page = [
        {
            **_session(summary),
            "messages": summary.messages,
            "firstPrompt": sanitize_name(summary.first_prompt),
            "lastPrompt": sanitize_name(summary.last_prompt),
        }
        for summary in found[offset : offset + limit]
    ]
    next_offset = offset + limit if len(found) > offset + limit else None
    return limit_result({"total": len(found), "offset": offset}, "sessions", page, next_offset)


def list_decisions(library: Library, *, project: str = ".", limit: int = 20, offset: int = 0) -> dict[str, Any]:
    """List recent decisions in a folder's project (see `decisions`)."""
    limit, offset = _page(limit, offset)
    folder = _folder(project or ".")
    found = recent_decisions(library, folder)
    page = [
        {
            "session": _session(decision.session),
            "entry": sanitize_name(decision.entry),
            "source": decision.source,
            "role": decision.who or None,
            "time": iso(decision.time),
            "text": sanitize(decision.text),
        }
        for decision in found[offset : offset + limit]
    ]
    answer = {"project": sanitize_name(folder), "total": len(found), "offset": offset}
    return limit_result(answer, "decisions", page, offset + limit if len(found) > offset + limit else None)


def known_session(library: Library, wanted: str) -> Summary:
    """Find a session of the library by id, prefix or path; never any other file."""
    wanted = wanted.strip()
    if "\0" in wanted or not wanted:
        raise NotFoundError("session: expected the id of a session from search_sessions or list_sessions")
    return library.find(wanted, outside=False)


def _page(limit: int, offset: int) -> tuple[int, int]:
    return min(max(limit, 1), MAX_ITEMS), min(max(offset, 0), _MAX_OFFSET)


def _folder(project: str) -> str:
    if "\0" in project:
        raise UsageError("project: expected a folder")
    return os.path.abspath(os.path.expanduser(project))


def _since(text: str) -> int:
    """Parse a time by the rules of the query language."""
    query = parse(f"since:{text}")
    if query.filters.since is None or query.where is not None:
        raise UsageError(f"since {sanitize(text[:40])!r}: expected an age like 7d (units: {UNITS}) or a date")
    return query.filters.since


def _session(summary: Summary) -> dict[str, Any]:
    return {
        "id": sanitize_name(summary.id),
        "path": sanitize(summary.ref),
        "agent": summary.agent,
        "title": sanitize_name(summary.title),
        "project": sanitize_name(summary.cwd),
        "active": iso(summary.active),
        "kind": summary.kind,
    }


def _hit(hit: Hit) -> dict[str, Any]:
    return {
        "session": _session(hit.session),
        "entry": sanitize_name(hit.entry) or None,
        "kind": hit.kind,
        "role": sanitize_name(hit.role),
        "tool": sanitize_name(hit.tool) or None,
        "time": iso(hit.time),
        "isError": hit.is_error,
        "branch": hit.branch,
        "note": BRANCHES[hit.branch] or None,
        "snippet": "".join(f"«{sanitize(part.text)}»" if part.is_hit else sanitize(part.text) for part in hit.snippet),
        "score": hit.score,
        "command": [sanitize(word) for word in hit.command],
    }


def _drop_neighbors(answer: Mapping[str, Any], entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Drop the farthest neighbors until a passage fits."""
    while True:
        found = limit_result(answer, "entries", entries, None)
        requested = next((at for at, entry in enumerate(entries) if entry["asked"]), 0)
        if len(found["entries"]) == len(entries) or len(entries) == 1:
            found.pop("nextOffset")
            return found
        entries = entries[1:] if requested >= len(entries) - requested - 1 else entries[:-1]
