"""The list of sessions: the search box of the terminal UI, with facets, groups and pages."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from sessiontree.app.preview import Preview, preview_session
from sessiontree.app.session_list import (
    GROUPS,
    SORTS,
    Heading,
    ListOptions,
    Row,
    SessionList,
    complete_filter,
    list_sessions,
    needs_full_text,
    searched_words,
    with_hits,
)
from sessiontree.library.summary import Summary
from sessiontree.search.query_parser import FILTERS, parse
from sessiontree.search.results import Hit
from sessiontree.web.site import Site, cached

PAGE = 50
MAX_QUERY = 2_000
_HEALTH = ("ok", "damaged", "empty", "draft")


class _Arranged(Struct, frozen=True):
    """A list that was computed, and what it was computed from."""

    basis: tuple[Any, ...]
    found: SessionList


class ListPages:
    """Routes of the list. The newest arrangement is kept: paging and polling do not compute it again."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._arranged: dict[tuple[Any, ...], _Arranged] = {}

    def page(self, request: Request) -> Response:
        """The page of the session list, with its filters."""
        return self._site.render("list.html", **self._values(request), facets=self._facets())

    def rows(self, request: Request) -> Response:
        """The rows only, for typing and live updates."""
        return self._site.render("rows.html", **self._values(request))

    def completion(self, request: Request) -> Response:
        text = request.query_params.get("q", "")[:MAX_QUERY]
        values = self._site.workbench.filter_values(self._site.known(), self._site.tags()[0])
        return JSONResponse({"completed": complete_filter(text, values, FILTERS)})

    def preview(self, request: Request) -> Response:
        """The first and the last exchange of a session."""
        summary = self._site.summary_of(request)
        with self._site.sessions.use(summary) as opened:
            shown: Preview = cached(opened, "preview", lambda: preview_session(opened.session))
        workbench = self._site.workbench
        command = workbench.with_short_paths(workbench.resume_command(summary))
        return HTMLResponse(self._site.fragment("preview.html", "preview", shown, summary, command))

    def _values(self, request: Request) -> dict[str, Any]:
        query = request.query_params
        text = query.get("q", "")[:MAX_QUERY]
        sort, group, health = query.get("sort", "recent"), query.get("group", "none"), query.get("health")
        options = ListOptions(
            text,
            sort if sort in SORTS else "recent",
            group if group in GROUPS else "none",
            health=health if health in _HEALTH else None,
        )
        found, snippets = self._find(options)
        start = _number(query.get("start"))
        return {
            "options": options,
            "rows": _page_of(found.rows, start),
            "found": found,
            "start": start,
            "page": PAGE,
            "tags": self._site.tags()[0],
            "pinned": self._site.tags()[1],
            "snippets": snippets,
            "words": searched_words(text),
            "sorts": SORTS,
            "groups": GROUPS,
            "healths": _HEALTH,
        }

    def _find(self, options: ListOptions) -> tuple[SessionList, Mapping[str, Hit]]:
        site = self._site
        sessions, (tags, _) = site.known(), site.tags()
        key = (options.query, options.sort, options.group, options.health)
        basis = (sessions, tags)
        with self._lock:
            kept = self._arranged.get(key)
        if kept is not None and all(one is other for one, other in zip(kept.basis, basis, strict=True)):
            found = kept.found
        else:
            copies = site.workbench.library.read_copies()
            found = list_sessions(sessions, options, tags=tags, copies=copies, problem=site.workbench.problem)
            with self._lock:
                self._arranged = {**dict(list(self._arranged.items())[-7:]), key: _Arranged(basis, found)}
        if not options.query or not needs_full_text(parse(options.query)):
            return found, {}
        hits = site.workbench.search(options.query)
        snippets = {hit.session.ref: hit for hit in reversed(hits)}
        return with_hits(found, [hit.session for hit in hits if _passes(hit.session, options)]), snippets

    def _facets(self) -> dict[str, Sequence[str]]:
        values = self._site.workbench.filter_values(self._site.known(), self._site.tags()[0])
        return {name: list(values[name])[:40] for name in ("agent", "project", "model", "tag")}


def _page_of(rows: Sequence[Row], start: int) -> Sequence[Row]:
    """The rows of a page; one that starts inside of a group starts with its heading."""
    shown = rows[start : start + PAGE]
    if not shown or isinstance(shown[0], Heading):
        return shown
    above = next((row for row in reversed(rows[:start]) if isinstance(row, Heading)), None)
    return shown if above is None else [above, *shown]


def _passes(summary: Summary, options: ListOptions) -> bool:
    return options.health is None or summary.health == options.health


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 9 else 0
