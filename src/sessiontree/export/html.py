"""A session as one HTML page: the conversation, and a sidebar with the tree of its branches.

Rules:

* Session text never becomes markup: every text goes through `esc`, every id through `anchor`.
* The page loads nothing: no network, no fonts, images only as data of four known types. A content security policy
  allows only our own style and script, by their hashes.
* The page works without scripts: the one script only adds search and folding.

The sidebar comes last in the file although it is displayed on the left. Its content (stops, totals, masked secrets) is
known only after all entries, and this way the page can be written while the session is read.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator

from sessiontree.export.html_pieces import esc, render_record, stamp
from sessiontree.export.record_builder import first_words
from sessiontree.export.records import Record
from sessiontree.export.sidebar import Sidebar
from sessiontree.export.source import Facts, Source


def render_html(source: Source) -> Iterator[str]:
    """Render the page in pieces."""
    facts = source.facts()
    style, script = page_part("style.css"), page_part("page.js")
    yield page_head(title_of(facts), style, script)
    yield f'<body><a class="skip" href="#tree">Branches and facts</a><main>{_heading(facts)}'
    side = Sidebar(source)
    for number, strand in enumerate(source.strands):
        if number:
            yield side.heading(number)
        for record in source.records(strand):
            side.note(number, record)
            yield render_record(record)
        if not number and not strand.nodes:
            yield '<p class="quiet">The session is at the beginning, before its first entry.</p>'
    yield from _section("Outside of the conversation", source.outside())
    yield from _damage(source)
    yield "</main>"
    yield from side.render(facts)
    yield f"<script>{script}</script></body></html>\n"


def page_part(name: str) -> str:
    """Read a static file that is embedded in every page."""
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def title_of(facts: Facts) -> str:
    return facts.title or f"Session {facts.id}"


def page_head(title: str, style: str, script: str | None = None) -> str:
    """The head of a page, with a policy that allows only this style and script."""
    scripts = "" if script is None else f"script-src {_hash(script)}; "
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; {scripts}base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="generator" content="sessiontree">'
        f"<title>{esc(first_words(title, 120))}</title><style>{style}</style></head>"
    )


def _heading(facts: Facts) -> str:
    parts = [
        facts.dialect,
        stamp(facts.created),
        facts.folder,
        f"branch {facts.git_branch}" if facts.git_branch else "",
    ]
    under = " · ".join(esc(part) for part in parts if part)
    return (
        f'<h1>{esc(first_words(title_of(facts), 300))}</h1><p class="under">{under} '
        '<a class="jump" href="#tree">Branches and facts</a></p>'
        '<div class="tools" id="tools" hidden><input id="find" type="search" placeholder="Find in this page ( / )" '
        'aria-label="Find in this page"><span id="found" class="quiet" role="status"></span>'
        '<button id="unfold" type="button">Unfold all</button><button id="fold" type="button">Fold all</button></div>'
    )


def _section(title: str, records: Iterator[Record]) -> Iterator[str]:
    first = next(records, None)
    if first is None:
        return
    yield f"<h2>{title}</h2>{render_record(first)}"
    for record in records:
        yield render_record(record)


def _damage(source: Source) -> Iterator[str]:
    """Problems in the file, and the bytes that do not belong to an entry."""
    problems = source.problems()
    if problems:
        yield '<h2 id="problems">Problems in the file</h2><ul>'
        for problem in problems:
            position = f"line {problem.line}, bytes {problem.start}-{problem.end}"
            yield f"<li><b>{esc(problem.kind)}</b> at {position}: {esc(problem.action)}</li>"
        yield "</ul>"
    fragments = source.fragments()
    if fragments:
        yield '<h2 id="fragments">Bytes outside of any entry</h2>'
    for number, fragment in enumerate(fragments):
        name = f"fragment-{number}"
        text = esc(fragment.raw.decode("utf-8", "replace"))
        position = f"line {fragment.line}, bytes {fragment.start}-{fragment.end}"
        yield (
            f'<article class="tool" id="{name}"><header><a href="#{name}">{esc(fragment.kind)}</a>'
            f"<span>{position}</span></header><pre>{text}</pre></article>"
        )
