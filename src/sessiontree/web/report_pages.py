"""Pages that compare, count and check: branches side by side, the context of a model, statistics, health, archive."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any, cast

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from sessiontree.app.actions.diff import plan_diff
from sessiontree.branches.list import list_branches
from sessiontree.compaction.token_estimate import context_size, pi_tokens
from sessiontree.core.entries import CONVERSATION_TYPES
from sessiontree.core.jsonio import render_indented_json
from sessiontree.export.html.diff_page import render_comparison
from sessiontree.export.record_builder import gist, records_of
from sessiontree.library.aggregate import By, Group, Statistics, build_statistics, select_sessions
from sessiontree.library.summary import Summary
from sessiontree.models.cost_estimate import cost_total
from sessiontree.providers import Form, render
from sessiontree.repair import examine
from sessiontree.session.session import Session
from sessiontree.views.json import describe_message
from sessiontree.views.listing import amount
from sessiontree.views.statistics import label_of
from sessiontree.web.site import Site, cached, key_of

FORMS = ("messages", "anthropic", "openai", "openai-chat")
MAX_SHOWN = 200
"""Messages of a context that are shown in full; if there are more, only the first and the last ones."""
_MAX_LEFT_OUT = 300
_BY: tuple[By, ...] = ("day", "model", "project", "agent")
_MAX_BARS = 40
_DAY_MS = 86_400_000
_LENGTHS = (2, 10, 25, 50, 100, 250, 500, 1_000)


class Bar(Struct, frozen=True):
    label: str
    value: float
    text: str


class Plot(Struct, frozen=True):
    """A bar chart."""

    title: str
    bars: tuple[Bar, ...]


class ReportPages:
    def __init__(self, site: Site) -> None:
        self._site = site

    def compare(self, request: Request) -> Response:
        """Two branches side by side, from where they diverge."""
        summary, query = self._site.summary_of(request), request.query_params
        with self._site.sessions.use(summary) as opened:
            session = opened.session
            branches = cached(opened, "branches", lambda: _named_branches(session))
            one = session.find_entry(query["one"]) if query.get("one") else session.leaf
            other = session.find_entry(query["other"]) if query.get("other") else None
            if other is None:
                other = next((found["leaf"] for found in branches if not found["is_active"]), None)
            comparison = None
            if one is not None and other is not None:
                found = plan_diff(session, one, other).found
                comparison = render_comparison(found, session.name or summary.title, session, session)
        values: dict[str, Any] = {"summary": summary, "key": key_of(summary.ref), "one": one, "other": other}
        return self._site.render("compare.html", branches=branches, comparison=comparison, **values)

    def context(self, request: Request) -> Response:
        """The messages that a model would receive for a branch, in a provider's form, and what was left out."""
        summary, query = self._site.summary_of(request), request.query_params
        form = query.get("form", "messages")
        form = form if form in FORMS else "messages"
        with self._site.sessions.use(summary) as opened:
            session = opened.session
            leaf = session.find_entry(query["leaf"]) if query.get("leaf") else session.leaf
            context = session.context(leaf)
            messages = list(context.messages)
            size = context_size(messages)
            rows, system, notes = _context_rows(messages, form)
            left_out = _left_out(session, context.path, frozenset(context.sources))
        return self._site.render(
            "context.html",
            summary=summary,
            key=key_of(summary.ref),
            leaf=leaf,
            form=form,
            forms=FORMS,
            rows=rows[:MAX_SHOWN] if len(rows) <= MAX_SHOWN else rows[: MAX_SHOWN // 2] + rows[-MAX_SHOWN // 2 :],
            hidden=max(0, len(rows) - MAX_SHOWN),
            system=system,
            notes=notes,
            size=size,
            count=len(messages),
            left_out=left_out[:_MAX_LEFT_OUT],
            left_out_count=len(left_out),
            state=context.state,
        )

    def statistics(self, request: Request) -> Response:
        """Tokens, cost and tool errors of all sessions, as plots."""
        days = request.query_params.get("days", "30")
        since = round(1000 * time.time()) - int(days) * _DAY_MS if days.isdecimal() and len(days) < 6 else None
        library = self._site.workbench.library
        library.refresh()
        sessions = select_sessions(library, since=since)
        plots: list[Plot] = []
        found: Statistics | None = None
        for by in _BY:
            found = build_statistics(library, sessions, by=by, since=since)
            plots += _plots(found)
        assert found is not None
        plots.append(_lengths(sessions))
        numbers = found.total.numbers
        return self._site.render(
            "stats.html",
            plots=[plot for plot in plots if plot.bars],
            total=found.total,
            cost=cost_total(numbers.cost, numbers.unpriced),
            gaps=found.gaps,
            days=days,
        )

    def health(self, request: Request) -> Response:
        """What `doctor` finds about a session, and whether it can be repaired."""
        summary = self._site.summary_of(request)
        with self._site.sessions.use(summary) as opened:
            findings = cached(opened, "findings", lambda: examine(opened.session))
            is_file = opened.session.ref.is_file
        can_repair = bool(findings) and is_file and not self._site.read_only
        values: dict[str, Any] = {"summary": summary, "key": key_of(summary.ref)}
        return self._site.render("health.html", findings=findings, can_repair=can_repair, **values)

    def archive(self, _request: Request) -> Response:
        items = sorted(self._site.workbench.home.items(), key=lambda item: item.when, reverse=True)
        return self._site.render("archive.html", items=items)


def _named_branches(session: Session) -> list[dict[str, Any]]:
    """The branches for a menu: names, else the first words of their last message."""
    found = []
    for branch in list_branches(session):
        node = session.node_of(branch.leaf)
        records = list(records_of(node, session.entry(branch.leaf))) if node is not None else []
        words = branch.name or next((gist(record, 60) for record in records), "") or branch.leaf
        found.append({"leaf": branch.leaf, "name": words, "is_active": branch.is_active})
    return found


def _context_rows(messages: list[Any], form: str) -> tuple[list[tuple[str, int | None, str]], str, list[str]]:
    """Role, tokens and JSON of each message; the system prompt; notes of the provider's form."""
    if form == "messages":
        rows: list[tuple[str, int | None, str]] = [
            (message.role, pi_tokens(message), render_indented_json(describe_message(message))) for message in messages
        ]
        return rows, "", []
    rendered = render(messages, cast(Form, form))
    rows = [(str(_role(message)), None, render_indented_json(message)) for message in rendered.messages]
    return rows, rendered.system or "", list(rendered.notes)


def _role(message: Any) -> object:
    return message.get("role") or message.get("type") or "" if isinstance(message, dict) else ""


def _left_out(session: Session, path: tuple[str, ...], sources: frozenset[str]) -> list[tuple[str, str]]:
    """The messages of a path that are not in its context, with their first words."""
    ids = [id for id in path if id not in sources and session.type_of(id) in CONVERSATION_TYPES]
    shown = ids[:_MAX_LEFT_OUT]
    words = []
    for id, entry in zip(shown, session.entries(shown), strict=True):
        record = next(records_of(session.node_of(id) or 0, entry), None)
        words.append((id, "" if record is None else f"{record.title}: {gist(record, 100)}"))
    return words + [(id, "") for id in ids[_MAX_LEFT_OUT:]]


def _plots(found: Statistics) -> list[Plot]:
    groups = found.groups[-_MAX_BARS:] if found.by == "day" else found.groups[:_MAX_BARS]
    plots = [
        Plot(
            f"Tokens by {found.by}",
            tuple(
                Bar(label_of(found.by, group), group.numbers.tokens, amount(group.numbers.tokens)) for group in groups
            ),
        ),
        Plot(f"Cost by {found.by}", tuple(_cost_bar(found.by, group) for group in groups)),
    ]
    if found.by == "day":
        errors = [group for group in groups if group.numbers.error_rate is not None]
        bars = (Bar(label_of(found.by, each), 100 * (each.numbers.error_rate or 0), _percent(each)) for each in errors)
        plots.append(Plot("Tool errors by day", tuple(bars)))
    return plots


def _cost_bar(by: By, group: Group) -> Bar:
    total = cost_total(group.numbers.cost, group.numbers.unpriced)
    return Bar(label_of(by, group), total.dollars or 0.0, total.text() if total.dollars is not None else "unknown")


def _percent(group: Group) -> str:
    return f"{100 * (group.numbers.error_rate or 0):.1f}% of {group.numbers.results:,}"


def _lengths(sessions: list[Summary]) -> Plot:
    """How many sessions have how many messages."""
    counts = [0] * (len(_LENGTHS) + 1)
    for summary in sessions:
        if summary.kind == "session":
            counts[sum(summary.messages >= limit for limit in _LENGTHS)] += 1
    names = [f"under {_LENGTHS[0]}", *(f"{low}-{high - 1}" for low, high in pairwise(_LENGTHS))]
    names.append(f"{_LENGTHS[-1]} and more")
    bars = (Bar(name, count, str(count)) for name, count in zip(names, counts, strict=True))
    return Plot("Sessions by number of messages", tuple(bars))
