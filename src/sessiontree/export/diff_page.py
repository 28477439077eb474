"""Two branches side by side on one HTML page, in the style of an exported session (see `html` for the rules)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sessiontree.branches.diff import Diff, SideFacts
from sessiontree.export.html import page_head, page_part
from sessiontree.export.html_pieces import esc, stamp
from sessiontree.export.record_builder import first_words
from sessiontree.export.sanitize import blocks
from sessiontree.views.text import plural

_STYLE = """
main.diff { max-width: none; }
.sides { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 0 1.2rem; align-items: start; }
.sides > section > h2 { margin-top: .6rem; }
.sides h3 { font-size: .86rem; margin: 1.1rem 0 .4rem; color: var(--quiet); }
@media (max-width: 60rem) { .sides { grid-template-columns: minmax(0, 1fr); } }
"""
_LONG = 600
"""Texts of at least this length are folded."""


def render_diff(found: Diff, title: str) -> Iterator[str]:
    """Render the page in pieces."""
    style = page_part("style.css") + _STYLE
    yield page_head(f"Two branches of {title}", style)
    yield f'<body><main class="diff"><h1>{esc(first_words(title, 300))}</h1><p class="under">{_divergence(found)}</p>'
    yield '<div class="sides">'
    for facts in (found.one, found.other):
        yield from _side(facts, {conflict.path for conflict in found.conflicts})
    yield "</div></main>"
    yield from _facts(found)
    yield "</body></html>\n"


def _divergence(found: Diff) -> str:
    if found.ancestor is None:
        return "The branches have no entries in common."
    shared = plural(found.shared, "entry", "entries")
    return f"Branches diverge after <code>{esc(found.ancestor)}</code> ({shared} in common)."


def _side(facts: SideFacts, disputed: set[str]) -> Iterator[str]:
    yield f"<section><h2>{_name(facts)}</h2>"
    yield from _articles("Last message", "assistant", [facts.final] if facts.final else [], fold=False)
    yield from _articles("Asked", "user", facts.asked)
    yield from _articles("Answered", "assistant", facts.answered[:-1])
    for heading, paths in (("Changed", facts.files.modified), ("Read", facts.files.read)):
        if paths:
            marks = [' <span class="bad">changed on both sides</span>' if path in disputed else "" for path in paths]
            items = [f"<li><code>{esc(path)}</code>{mark}</li>" for path, mark in zip(paths, marks, strict=True)]
            yield f"<h3>{heading}</h3><ul>{''.join(items)}</ul>"
    if facts.tools:
        counts = ", ".join(f"{esc(name)} {count:,}" for name, count in facts.tools.items())
        failed = f' <span class="bad">({facts.failed:,} failed)</span>' if facts.failed else ""
        yield f"<h3>Tool calls</h3><p>{counts}{failed}</p>"
    yield "</section>"


def _name(facts: SideFacts) -> str:
    label = f' <span class="label">{esc(facts.name)}</span>' if facts.name else ""
    return f"{esc((facts.leaf or '')[:40])}{label}"


def _articles(heading: str, who: str, texts: Sequence[str], *, fold: bool = True) -> Iterator[str]:
    if texts:
        yield f"<h3>{heading}</h3>"
    for text in texts:
        words = "".join(
            f"<pre><code>{esc(block.text)}</code></pre>" if block.code else f'<div class="text">{esc(block.text)}</div>'
            for block in blocks(text)
        )
        if fold and len(text) > _LONG:
            words = f"<details><summary>{esc(first_words(text, 120))}</summary>{words}</details>"
        yield f'<article class="{who}">{words}</article>'


def _facts(found: Diff) -> Iterator[str]:
    yield '<nav aria-label="Facts">'
    for facts in (found.one, found.other):
        used = facts.used
        rows = [
            ("session", facts.session),
            ("format", facts.dialect),
            ("entries", f"{facts.entries:,}"),
            ("messages", f"{facts.messages:,}"),
            ("context", f"{facts.context_tokens:,} tokens"),
            ("requests", f"{used.requests:,}"),
            ("tokens", f"{used.input:,} in, {used.output:,} out, {used.cached:,} cached"),
            ("cost", f"${used.cost:,.4f}" if used.cost else ""),
            ("last entry", stamp(facts.last_time)),
        ]
        yield f"<h2>{_name(facts)}</h2><dl>"
        yield from (f"<dt>{esc(name)}</dt><dd>{esc(value)}</dd>" for name, value in rows if value)
        yield "</dl>"
    if found.conflicts:
        yield "<h2>Changed on both sides</h2><ul>"
        yield from (f'<li class="bad">{esc(conflict.path)}</li>' for conflict in found.conflicts)
        yield "</ul>"
    yield "</nav>"
