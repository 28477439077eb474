"""Two branches side by side on one HTML page, in the style of an exported session (see `page` for the rules)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from sessiontree.branches.diff import Diff, SideFacts
from sessiontree.core.entries import CONVERSATION_TYPES
from sessiontree.export.escape import stamp
from sessiontree.export.html.cards import CardRenderer, group_cards
from sessiontree.export.html.environment import environment, static_text
from sessiontree.export.html.page import page_head
from sessiontree.export.record_builder import build_records
from sessiontree.models.cost_estimate import cost_total, describe_cost
from sessiontree.session.reader import Reader
from sessiontree.views.text import plural

MAX_ENTRIES = 400
"""Entries of a side that are shown; of more, the first and the last ones."""


def render_diff(found: Diff, title: str, one: Reader, other: Reader) -> Iterator[str]:
    """Render the page in pieces. `one` and `other` are the sessions of the two sides."""
    yield page_head(f"Two branches of {title}", static_text("session.css"))
    yield f"<body>{render_comparison(found, title, one, other)}</body></html>\n"


def render_comparison(found: Diff, title: str, one: Reader, other: Reader) -> Markup:
    """The content of the page: the messages and files of both sides, and facts about them."""
    macros: Any = environment().get_template("diff.html").module
    disputed = {conflict.path for conflict in found.conflicts}
    sides = [(side, _render_cards(session, side)) for side, session in ((found.one, one), (found.other, other))]
    facts = [(side, side_facts(side)) for side in (found.one, found.other)]
    rendered: Markup = macros.comparison(found, title, disputed, sides, facts)
    return rendered


def _render_cards(session: Reader, side: SideFacts) -> Markup:
    """The messages of a side after the branches diverge."""
    types = session.journal.types
    nodes = [node for node in side.nodes if types[node] in CONVERSATION_TYPES]
    hidden = len(nodes) - MAX_ENTRIES
    if hidden > 0:
        parts = [nodes[: MAX_ENTRIES // 2], nodes[-(MAX_ENTRIES // 2) :]]
    else:
        parts = [nodes]
    renderer = CardRenderer(session.dialect.name)
    rendered = [
        Markup("").join(
            renderer.render(card)
            for card in group_cards(
                build_records(zip(part, session.journal.entries(part), strict=True), session.labels)
            )
        )
        for part in parts
    ]
    return Markup('<p class="quiet">⋯ {} not shown ⋯</p>').format(plural(hidden, "entry", "entries")).join(rendered)


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
