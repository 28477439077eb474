"""Two branches side by side on one HTML page, in the style of an exported session (see `page` for the rules)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from sessiontree.branches.diff import Diff, SideFacts
from sessiontree.export.escape import stamp
from sessiontree.export.html.environment import environment, static_text
from sessiontree.export.html.markdown_renderer import render_message
from sessiontree.export.html.page import page_head
from sessiontree.models.cost_estimate import cost_total, describe_cost

LONG = 600
"""Texts of at least this length are folded."""


def render_diff(found: Diff, title: str) -> Iterator[str]:
    """Render the page in pieces."""
    yield page_head(f"Two branches of {title}", static_text("session.css"))
    yield f"<body>{render_comparison(found, title)}</body></html>\n"


def render_comparison(found: Diff, title: str) -> Markup:
    """The content of the page: both sides, and facts about them."""
    macros: Any = environment().get_template("diff.html").module
    disputed = {conflict.path for conflict in found.conflicts}
    facts = [(side, side_facts(side)) for side in (found.one, found.other)]
    rendered: Markup = macros.comparison(found, title, disputed, facts, render_message, LONG)
    return rendered


def side_facts(facts: SideFacts) -> list[tuple[str, str]]:
    used = facts.used
    rows = [
        ("session", facts.session),
        ("format", facts.dialect),
        ("entries", f"{facts.entries:,}"),
        ("messages", f"{facts.messages:,}"),
        ("context", f"{facts.context_tokens:,} tokens"),
        ("requests", f"{used.requests:,}"),
        ("tokens", f"{used.input:,} in, {used.output:,} out, {used.cached:,} cached"),
        ("cost", describe_cost(cost_total(used.cost, used.unpriced)) if used.requests else ""),
        ("last entry", stamp(facts.last_time)),
    ]
    return [(name, value) for name, value in rows if value]
