"""A session as one HTML page: the conversation, and a sidebar with its branch graph.

Rules:

* Session text never becomes markup: templates escape it, Markdown is parsed without raw HTML, ids go through `anchor`.
* The page loads nothing: no network, no fonts, images only as data of four known types. A content security policy
  allows only our own style and script, by their hashes.
* The page can be read without scripts: they only add search, folding and the picture of branches.

The sidebar comes last in the file although it is displayed on the left. Its content (stops, totals, masked secrets) is
known only after all entries, and this way the page can be written while the session is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from markupsafe import Markup

from sessiontree.core.jsonio import escape_controls, render_json
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.export.html.branch_graph import build_graph_data
from sessiontree.export.html.cards import CardRenderer, State, group_cards
from sessiontree.export.html.compaction_folds import find_folds
from sessiontree.export.html.environment import content_hash, environment, static_text
from sessiontree.export.html.sidebar import Sidebar
from sessiontree.export.html.subagents import Subagents
from sessiontree.export.records import Record
from sessiontree.export.source import Facts, Source
from sessiontree.session.reader import Reader


def render_html(source: Source) -> Iterator[str]:
    """Render the page in pieces."""
    facts = source.facts()
    parts: Any = environment().get_template("export.html").module
    yield _head(title_of(facts))
    yield parts.opening(facts, title_of(facts))
    side = Sidebar(source)
    recovered = find_recovered(source.session)

    def render_strand(number: int, *, is_nested: bool = False) -> Iterator[str]:
        strand = source.outline.strands[number]
        records = _noted(side, number, source.records(strand))
        states = _states(recovered, is_active=strand.active or is_nested)
        folds = find_folds(source.session, strand.nodes)
        for card in group_cards(records, states):
            yield from folds.markup_before(card.first.node)
            yield renderer.render(card)
        yield from folds.markup_at_end()

    subagents = Subagents(source, lambda number: render_strand(number, is_nested=True))
    side.nested = nested = frozenset(subagents.waiting)
    renderer = CardRenderer(facts.dialect, subagents.render)
    for number, strand in enumerate(source.strands):
        if number in nested and number not in subagents.waiting:
            continue  # it was shown inside of the call that started it
        if number:
            subagents.waiting.discard(number)
            origin = None if strand.fork is None else source.session.journal.tree.ids[strand.fork]
            yield parts.branch_heading(number, origin, side.first_words(number))
        yield from render_strand(number)
        if not number and not strand.nodes:
            yield '<p class="quiet">The session is at the beginning, before its first entry.</p>'
    side.nested -= subagents.waiting
    yield from _outside(source, renderer)
    yield parts.damage(source.problems(), source.fragments())
    yield "</main>"
    yield parts.sidebar(side.outline(), side.facts(facts))
    graph = build_graph_data(source.session, side.rows.get, source.labels)
    side.rows.clear()
    yield '<script type="application/json" id="graph-data">{"version":1'
    for name in list(graph):  # one after the other, so that the memory of a huge picture is bounded
        yield f',"{name}":{embedded_json(graph.pop(name))}'
    yield "}</script>"
    yield f"<script>{_script()}</script></body></html>\n"


def _noted(side: Sidebar, number: int, records: Iterable[Record]) -> Iterator[Record]:
    for record in records:
        side.note(number, record)
        yield record


def find_recovered(session: Reader) -> frozenset[int]:
    """The entries of the active path that the session's own client would not show."""
    return find_lost(session) if session.read_options.recovered else frozenset()


def find_lost(session: Reader) -> frozenset[int]:
    """The entries of the active path that only a recovered reading shows."""
    leaf = session.node_of(session.leaf)
    shown = session.dialect.find_history(session.journal, leaf, ReadOptions(recovered=True))
    return frozenset(shown).difference(session.dialect.find_history(session.journal, leaf, AS_CLIENT))


def _states(recovered: frozenset[int], *, is_active: bool) -> Callable[[int], tuple[State, ...]]:
    base: tuple[State, ...] = () if is_active else ("abandoned",)
    return lambda node: (*base, "recovered") if node in recovered else base


def embedded_json(value: object) -> Markup:
    """JSON that can be part of a script element: no character in it can end the element."""
    text = escape_controls(render_json(value)).decode("utf-8", "replace")
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704 - as stated


def title_of(facts: Facts) -> str:
    return facts.title or f"Session {facts.id}"


def _script() -> Markup:
    return static_text("graph.js") + static_text("session.js")


def _head(title: str) -> str:
    return page_head(title, static_text("session.css"), _script())


def page_head(title: str, style: Markup, script: Markup | None = None) -> str:
    """The head of a page, with a policy that allows only this style and script."""
    scripts = "" if script is None else f"script-src {content_hash(script)}; "
    policy = (
        f"default-src 'none'; img-src data:; style-src {content_hash(style)}; {scripts}base-uri 'none'; "
        "form-action 'none'"
    )
    head: str = environment().get_template("export.html").module.head(title, policy, style)  # type: ignore[attr-defined]
    return head


def _outside(source: Source, renderer: CardRenderer) -> Iterator[str]:
    cards = group_cards(source.outside())
    first = next(cards, None)
    if first is not None:
        yield "<h2>Outside of the conversation</h2>"
        yield renderer.render(first)
        yield from map(renderer.render, cards)
