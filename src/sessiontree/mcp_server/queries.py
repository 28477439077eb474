"""Questions about past sessions and their answers: plain values, bounded in size, marked as untrusted.

What cannot be answered raises one of the package's errors, with a message for whoever asked. A session is named by its
id, the beginning of it, or its path, and has to be one that the library knows: no other file is ever read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sessiontree.errors import NotFoundError, UsageError
from sessiontree.library.library import Library
from sessiontree.library.summary import Summary
from sessiontree.mcp_server.decisions import recent_decisions
from sessiontree.mcp_server.limits import (
    LONGEST_NEIGHBOUR,
    LONGEST_QUERY,
    LONGEST_TEXT,
    MOST_AROUND,
    MOST_ITEMS,
    bounded,
    fact,
    harmless,
    piece_of,
)
from sessiontree.search import Hit, search
from sessiontree.search.query_parser import parse
from sessiontree.views.listing import iso
from sessiontree.views.passages import find_passage, path_through, speaker, told
from sessiontree.views.search_results import BRANCHES

_MOST_OFFSET = 10_000


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
    """What fits a query in all sessions, the best sessions first."""
    if not query.strip():
        raise UsageError("query: expected words to look for, such as: parser timeout since:2w")
    if len(query) > LONGEST_QUERY:
        raise UsageError(f"query: {len(query)} characters; at most {LONGEST_QUERY} can be looked for")
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
        "query": harmless(query),
        "state": results.state,
        "total": offset + len(hits) if is_end else None,
        "offset": offset,
        "unindexed": results.unindexed,
        "notes": [fact(note) for note in results.notes[:10]],
    }
    return bounded(answer, "hits", [_hit(hit) for hit in hits], results.next_offset)


def read_passage(
    library: Library, session: str, entry: str = "", *, around: int = 2, offset: int = 0
) -> dict[str, Any]:
    """An entry in full, piece by piece if it is long, with neighbours; without an id, the newest of the session."""
    from sessiontree.session.open import open

    one = known_session(library, session)
    opened = open(one.path, dialect=one.agent)
    id = opened.find_entry(entry) if entry else opened.leaf
    if id is None:
        raise NotFoundError(f"{one.id}: nothing was said in this session")
    around = min(max(around, 0), MOST_AROUND)
    passage = find_passage(opened, id, around)
    path = path_through(opened, id)
    described: list[dict[str, Any]] = []
    for number, found in enumerate(passage.entries):
        is_asked = number == passage.at
        text = harmless(told(found))
        start = min(max(offset, 0), len(text)) if is_asked else 0
        piece, more = piece_of(text, start, LONGEST_TEXT if is_asked else LONGEST_NEIGHBOUR)
        described.append(
            {
                "entry": fact(found.id),
                "asked": is_asked,
                "role": fact(speaker(found)),
                "time": fact(found.timestamp),
                "text": piece,
                "length": len(text),
                "nextOffset": more,
            }
        )
    first, last = passage.before, len(path) - passage.after - 1
    answer = {
        "session": _session(one),
        "isActive": id in (opened.path_ids() if opened.leaf is not None else []),
        "previousEntry": fact(path[first - 1]) if first > 0 else None,
        "nextEntry": fact(path[last + 1]) if last + 1 < len(path) else None,
    }
    return _fitting(answer, described)


def list_sessions(
    library: Library, *, project: str = "", agent: str = "", since: str = "", limit: int = 20, offset: int = 0
) -> dict[str, Any]:
    """The sessions there are, the newest first; with `project`, those of the project of a folder."""
    limit, offset = _page(limit, offset)
    found = library.sessions(
        agent=agent or None, project=_folder(project) if project else None, since=_since(since) if since else None
    )
    page = [
        {
            **_session(one),
            "messages": one.messages,
            "firstPrompt": fact(one.first_prompt),
            "lastPrompt": fact(one.last_prompt),
        }
        for one in found[offset : offset + limit]
    ]
    next_offset = offset + limit if len(found) > offset + limit else None
    return bounded({"total": len(found), "offset": offset}, "sessions", page, next_offset)


def list_decisions(library: Library, *, project: str = ".", limit: int = 20, offset: int = 0) -> dict[str, Any]:
    """What was decided lately in the project of a folder, as far as simple rules can tell (see `decisions`)."""
    limit, offset = _page(limit, offset)
    folder = _folder(project or ".")
    found = recent_decisions(library, folder)
    page = [
        {
            "session": _session(one.session),
            "entry": fact(one.entry),
            "source": one.source,
            "role": one.who or None,
            "time": iso(one.time),
            "text": harmless(one.text),
        }
        for one in found[offset : offset + limit]
    ]
    answer = {"project": fact(folder), "total": len(found), "offset": offset}
    return bounded(answer, "decisions", page, offset + limit if len(found) > offset + limit else None)


def known_session(library: Library, wanted: str) -> Summary:
    """A session that the library knows, by id, the beginning of one, or its path; never another file."""
    wanted = wanted.strip()
    if "\0" in wanted or not wanted:
        raise NotFoundError("session: expected the id of a session, as search_sessions and list_sessions give it")
    if os.sep in wanted or wanted.endswith(".jsonl"):
        path = os.path.abspath(wanted)
        for one in library.everything():
            if one.path == path:
                return one
        raise NotFoundError(
            "session: this path is none of a known session; search_sessions and list_sessions give them"
        )
    return library.find(wanted)


def _page(limit: int, offset: int) -> tuple[int, int]:
    return min(max(limit, 1), MOST_ITEMS), min(max(offset, 0), _MOST_OFFSET)


def _folder(project: str) -> str:
    if "\0" in project:
        raise UsageError("project: expected a folder")
    return os.path.abspath(os.path.expanduser(project))


def _since(text: str) -> int:
    """By the rules of the query language."""
    asked = parse(f"since:{text}")
    if asked.filters.since is None or asked.where is not None:
        raise UsageError(f"since {harmless(text[:40])!r}: expected an age like 7d (m, h, d, w, mo, y) or a date")
    return asked.filters.since


def _session(one: Summary) -> dict[str, Any]:
    return {
        "id": fact(one.id),
        "path": harmless(one.path),
        "agent": one.agent,
        "title": fact(one.title),
        "project": fact(one.cwd),
        "active": iso(one.active),
        "kind": one.kind,
    }


def _hit(hit: Hit) -> dict[str, Any]:
    return {
        "session": _session(hit.session),
        "entry": fact(hit.entry) or None,
        "kind": hit.kind,
        "role": fact(hit.role),
        "tool": fact(hit.tool) or None,
        "time": iso(hit.time),
        "isError": hit.is_error,
        "branch": hit.branch,
        "note": BRANCHES[hit.branch] or None,
        "snippet": "".join(f"«{harmless(part.text)}»" if part.is_hit else harmless(part.text) for part in hit.snippet),
        "score": hit.score,
        "command": [harmless(word) for word in hit.command],
    }


def _fitting(answer: Mapping[str, Any], entries: list[dict[str, Any]]) -> dict[str, Any]:
    """A passage with as many neighbours as there is room for; those farthest from the entry go first."""
    while True:
        found = bounded(answer, "entries", entries, None)
        asked = next((at for at, entry in enumerate(entries) if entry["asked"]), 0)
        if len(found["entries"]) == len(entries) or len(entries) == 1:
            found.pop("nextOffset")
            return found
        entries = entries[1:] if asked >= len(entries) - asked - 1 else entries[:-1]
