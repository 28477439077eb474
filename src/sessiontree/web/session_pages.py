"""Pages of one session: the conversation in windows, its branch graph and outline, search, downloads."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import quote

from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from sessiontree.app.actions.export import new_redactor
from sessiontree.app.actions.table import ACTIONS, Subject
from sessiontree.branches.subagent_branches import find_subagent_branches
from sessiontree.branches.subagent_sessions import list_subagent_sessions
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.errors import UsageError
from sessiontree.explore.state import find_exploration
from sessiontree.export import FORMATS, Format, export
from sessiontree.export.html.branch_graph import build_graph_data
from sessiontree.export.html.page import find_lost
from sessiontree.library.summary import Summary
from sessiontree.models.cost_estimate import cost_total, describe_cost
from sessiontree.session.session import Session
from sessiontree.stores.repositories import find_ref
from sessiontree.web.action_routes import is_offered
from sessiontree.web.open_sessions import OpenSession
from sessiontree.web.session_view import (
    PathView,
    SubagentAddresses,
    Window,
    build_outline,
    describe_nodes,
    find_leaf_of,
    find_path,
    find_subagent_path,
    find_text,
    find_window,
    render_window,
)
from sessiontree.web.site import Site, cached, key_of

MAX_NODES = 400
"""Entries whose text one request may ask for."""
_MEDIA = {"md": "text/markdown", "html": "text/html", "json": "application/json", "jsonl": "application/x-ndjson"}
_EXTENSIONS = {"text": "txt"}
_NOT_OFFERED = frozenset({"export", "diff", "rewind", "undo-rewind", "keep-lane", "merge-lanes", "drop-lanes"})
"""Actions with a separate page, or that need an agent's workspace."""


def _cards_of(ref: str) -> str:
    """The address of all cards of a session."""
    return f"/s/{key_of(ref)}/cards?to_end=1&start=0"


class SessionPages:
    def __init__(self, site: Site) -> None:
        self._site = site

    def page(self, request: Request) -> Response:
        """A window of the conversation, with everything around it."""
        summary = self._site.summary_of(request)
        query = request.query_params
        workbench = self._site.workbench
        shorten = workbench.with_short_paths
        with self._use(request) as opened:
            session = opened.session
            entry = session.find_entry(query["entry"]) if query.get("entry") else None
            leaf = query.get("leaf")
            if query.get("lane"):  # its last entry now, which the address cannot know
                leaf = find_exploration(session, query.get("run")).lane(query["lane"]).leaf
            path = self._path(opened, leaf, entry)
            window = find_window(session, path, entry=entry, start=_number(query.get("start")))
            tags, pinned = self._site.tags()
            return self._site.render(
                "session.html",
                summary=summary,
                key=key_of(summary.ref),
                title=session.name or summary.title or f"Session {session.id}",
                session=session,
                path=path,
                window=window,
                cards=render_window(session, path, window, self._subagents(opened)),
                tags=tags.get(summary.ref, ()),
                is_pinned=summary.ref in pinned,
                facts=cached(opened, "facts", lambda: _facts(session, shorten)),
                children=self._children(summary),
                actions=self._actions(session),
                resume=shorten(workbench.resume_command(summary)),
                folder=shorten(session.cwd or ""),
                problems=session.known_problems,
                is_recovered=session.read_options.recovered,
            )

    def cards(self, request: Request) -> Response:
        """The cards of another window, as a fragment with its positions in headers."""
        query = request.query_params
        with self._use(request) as opened:
            subagent = query.get("subagent")
            path = find_subagent_path(opened.session, subagent) if subagent else None
            path = path or self._path(opened, query.get("leaf"), None)
            start, before = _number(query.get("start")), _number(query.get("before"))
            node = _number(query.get("node"))
            if node is not None and node in path.nodes:
                start = path.nodes.index(node)
            if query.get("to_end") and start is not None:
                window = Window(min(start, len(path.nodes)), len(path.nodes), len(path.nodes))
            else:
                window = find_window(opened.session, path, start=start, before=before)
            body = render_window(opened.session, path, window, self._subagents(opened))
        headers = {"x-start": str(window.start), "x-end": str(window.end), "x-total": str(window.total)}
        return HTMLResponse(body, headers=headers)

    def graph(self, request: Request) -> Response:
        with self._use(request) as opened:
            return JSONResponse(cached(opened, "graph", lambda: build_graph_data(opened.session)))

    def rows(self, request: Request) -> Response:
        """Kind and text of some entries of the picture."""
        texts = request.query_params.get("nodes", "").split(",")[:MAX_NODES]
        nodes = [int(text) for text in texts if text.isdecimal() and len(text) < 10]
        with self._use(request) as opened:
            found = describe_nodes(opened.session, nodes)
        return JSONResponse({str(node): [row.kind, row.text] for node, row in found.items()})

    def outline(self, request: Request) -> Response:
        with self._use(request) as opened:
            path = self._path(opened, request.query_params.get("leaf"), None)
            stops = cached(opened, f"outline {path.leaf}", lambda: build_outline(opened.session, path))
            lost = cached(opened, "lost", lambda: find_lost(opened.session))
        query = {name: value for name in ("leaf", "recovered") if (value := request.query_params.get(name))}
        body = self._site.fragment("session_parts.html", "outline", stops, query)
        return HTMLResponse(body, headers={"x-lost": str(len(lost))})

    def find(self, request: Request) -> Response:
        """The entries of this branch, or of all, that contain a text."""
        summary = self._site.summary_of(request)
        words = request.query_params.get("q", "").strip()[:500]
        everywhere = bool(request.query_params.get("all"))
        with self._use(request) as opened:
            session = opened.session
            nodes = list(range(len(session))) if everywhere else self._path(opened, None, None).nodes
            hits = find_text(session, nodes, words) if words else []
        values: dict[str, Any] = {"summary": summary, "key": key_of(summary.ref), "everywhere": everywhere}
        return self._site.render("find.html", words=words, hits=hits, **values)

    def download(self, request: Request) -> Response:
        """The session as a file, as `sessiontree export` writes it."""
        summary = self._site.summary_of(request)
        format = request.query_params.get("format", "html")
        if format not in FORMATS:
            raise UsageError(f"unknown format {format!r}; use one of {', '.join(FORMATS)}")
        chosen: Format = format
        redactor = new_redactor() if request.query_params.get("redact") else None
        branch: Any = "active" if request.query_params.get("branch") == "active" else "all"

        def pieces() -> Iterator[bytes]:
            # A separate session: a slow download does not block the page.
            with self._site.workbench.open_session(summary) as session:
                yield from export(session, chosen, branch=branch, redactor=redactor)

        return StreamingResponse(
            _in_thread(pieces()),
            media_type=_MEDIA.get(format, "text/plain"),
            headers={"content-disposition": f'attachment; filename="{_file_name(summary, format)}"'},
        )

    @contextlib.contextmanager
    def _use(self, request: Request) -> Iterator[OpenSession]:
        """The session of a request, read as its client does or, with `recovered`, with what the client loses."""
        read_options = ReadOptions(recovered=True) if request.query_params.get("recovered") else AS_CLIENT
        with self._site.sessions.use(self._site.summary_of(request), read_options) as opened:
            yield opened

    def _path(self, opened: OpenSession, leaf: str | None, entry: str | None) -> PathView:
        session = opened.session
        chosen = session.find_entry(leaf) if leaf else None
        if chosen is None and entry is not None:
            chosen = find_leaf_of(session, entry)
        found: PathView = cached(opened, f"path {chosen}", lambda: find_path(session, chosen))
        return found

    def _subagents(self, opened: OpenSession) -> SubagentAddresses:
        session, summary = opened.session, opened.summary
        children = {child.ref for child in self._children(summary)}
        forks = {
            each.ref: each.modified for each in self._site.known() if each.forked_from in (session.id, summary.ref)
        }

        def compute() -> SubagentAddresses:
            ids = session.journal.tree.ids
            on_branches = {
                call: f"{_cards_of(summary.ref)}&subagent={quote(ids[node])}"
                for call, node in find_subagent_branches(session).items()
            }
            in_files = {
                file.call: _cards_of(place)
                for file in (session.related_files() if children else ())
                for place in file.places
                if file.call and place in children
            }
            sessions = list_subagent_sessions(session, map(find_ref, forks))
            return SubagentAddresses(on_branches | in_files, sessions, lambda ref: _cards_of(str(ref)))

        found: SubagentAddresses = cached(opened, f"subagents {len(children)} {sorted(forks.items())}", compute)
        return found

    def _children(self, summary: Summary) -> list[Summary]:
        return [each for each in self._site.known() if each.parent == summary.ref]

    def _actions(self, session: Session) -> list[dict[str, Any]]:
        if self._site.read_only:
            return []
        workbench = self._site.workbench
        subject = Subject(session, workbench.home, workbench.settings)
        return [
            {
                "name": action.name,
                "title": action.title,
                "whyNot": action.why_not(subject),
                "arguments": [
                    {
                        "name": argument.name,
                        "kind": "choice" if argument.name == "to" else argument.kind,
                        "required": argument.is_required,
                        "choices": workbench.agents() if argument.name == "to" else list(argument.choices),
                    }
                    for argument in action.arguments
                    if argument.kind != "path" and not (argument.name == "to" and self._site.is_shared)
                ],
            }
            for action in ACTIONS.values()
            if action.name not in _NOT_OFFERED and is_offered(self._site, action.name)
        ]


def _facts(session: Session, shorten: Callable[[str], str]) -> list[tuple[str, str]]:
    header, usage = session.header, session.usage()
    rows = [
        ("session", session.id),
        ("format", f"{session.dialect.name}, version {header.version}"),
        ("file", shorten(session.location)),
        ("folder", shorten(session.cwd)),
        ("git branch", session.git_branch or ""),
        ("entries", f"{len(session):,}"),
        ("requests", f"{usage.requests:,}"),
        ("tokens", f"{usage.input:,} in, {usage.output:,} out, {usage.cached:,} cached"),
        ("cost", describe_cost(cost_total(usage.cost, usage.unpriced)) if usage.requests else ""),
        ("read-only", session.read_only or ""),
    ]
    return [(name, value) for name, value in rows if value]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 12 else None


def _file_name(summary: Summary, format: str) -> str:
    name = "".join(letter for letter in summary.id if letter.isalnum() or letter in "-_")[:60] or "session"
    return f"{name}.{_EXTENSIONS.get(format, format)}"


def _in_thread(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    return iterate_in_threadpool(pieces)
