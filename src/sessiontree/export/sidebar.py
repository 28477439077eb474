"""The sidebar of the page: the tree of branches with links, and facts about the session."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from sessiontree.branches.merge_records import MergeRecord, find_merges
from sessiontree.export.html_pieces import anchor, esc, stamp
from sessiontree.export.record_builder import gist
from sessiontree.export.records import Call, Record
from sessiontree.export.source import Facts, Source

_DEEPEST = 8
"""Indentation limit of nested branches; deeper ones are appended at the end, starting from the left again."""


class Stop(Struct):
    """A linked entry in the tree."""

    node: int
    id: str
    who: str
    text: str
    label: str | None = None


class Sidebar:
    """Collects stops while records are rendered; rendered itself at the end."""

    def __init__(self, source: Source) -> None:
        self._source = source
        strands = source.outline.strands
        self._leaving: dict[int | None, list[int]] = {}
        """Strand numbers by the entry they fork from."""
        for number, strand in enumerate(strands[1:], 1):
            self._leaving.setdefault(strand.fork, []).append(number)
        self._stops: list[list[Stop]] = [[] for _ in strands]
        self._words: dict[int, str] = {}
        self._deeper: deque[int] = deque()
        self._here = source.session.node_of(source.session.leaf)
        self._joins = find_merges(source.session)
        self._merged = {
            source.session.node_of(join.entry)
            for join in self._joins.values()
            if join.session is None and join.entry in source.session
        }
        """Last entries of branches that were merged into others."""

    def heading(self, number: int) -> str:
        """The heading of a strand: where it forks, and its first words."""
        strand = self._source.outline.strands[number]
        words = self._first_words(number)
        if strand.fork is None:
            origin = "the beginning"
        else:
            id = self._source.session.journal.tree.ids[strand.fork]
            origin = f'<a href="#{anchor(id)}">{esc(id[:40])}</a>'
        return f'<h2 id="branch-{number}">Branch from {origin}: {esc(words)}</h2>'

    def _first_words(self, number: int) -> str:
        words = self._words.get(number)
        if words is None:
            record = self._source.first_record(self._source.outline.strands[number])
            words = (gist(record) if record is not None else "") or "(no text)"
            self._words[number] = words
        return words

    def note(self, number: int, record: Record) -> None:
        """Add a record to the tree if it is a prompt, a summary, a label, a fork or the current entry."""
        stops = self._stops[number]
        is_join = record.id in self._joins
        if is_join or record.who in ("user", "summary") or record.label or self._is_landmark(record.node):
            stops.append(Stop(record.node, record.id, record.who, gist(record) or record.title, record.label))
        for piece in record.pieces:
            result = piece.result if isinstance(piece, Call) else None
            if result is not None and (result.label or self._is_landmark(result.node)):
                stops.append(Stop(result.node, result.id, "tool", f"result of {result.name}", result.label))

    def _is_landmark(self, node: int) -> bool:
        return node in self._leaving or node == self._here or node in self._merged

    def render(self, facts: Facts) -> Iterator[str]:
        yield '<nav id="tree" aria-label="Branches and facts"><h2>Branches</h2>'
        yield from self._tree()
        yield "<h2>Facts</h2><dl>"
        for name, value in self._rows(facts):
            yield f"<dt>{esc(name)}</dt><dd>{esc(value)}</dd>"
        yield "</dl></nav>"

    def _tree(self) -> Iterator[str]:
        yield "<ul>"
        yield from self._strand(0, 0)
        for number in self._leaving.get(None, ()):
            yield from self._branch(number, 0)
        while self._deeper:
            yield from self._branch(self._deeper.popleft(), 0)
        yield "</ul>"

    def _strand(self, number: int, depth: int) -> Iterator[str]:
        """The stops of a strand, each followed by the branches that fork there."""
        side = "on" if self._source.outline.strands[number].active else "off"
        for stop in self._stops[number]:
            label = f'<span class="label">{esc(stop.label)}</span> ' if stop.label else ""
            here = ' <span class="here">◀ here</span>' if stop.node == self._here else ""
            yield f'<li class="{side} said-{stop.who}"><a href="#{anchor(stop.id)}">{label}{esc(stop.text)}{here}</a>'
            yield self._came_from(self._joins.get(stop.id))
            leaving = self._leaving.get(stop.node, ())
            if depth >= _DEEPEST:
                self._deeper += leaving
            elif leaving:
                yield "<ul>"
                for branch in leaving:
                    yield from self._branch(branch, depth + 1)
                yield "</ul>"
            yield "</li>"

    def _came_from(self, join: MergeRecord | None) -> str:
        """A link from a merge to its second parent, the end of the merged branch."""
        if join is None:
            return ""
        where = f"{esc(join.session[:40])} " if join.session else ""
        name = f"⇠ merged from {where}{esc(join.entry[:40])}"
        is_here = join.session is None and self._source.branch == "all" and join.entry in self._source.session
        return (
            f'<a class="join" href="#{anchor(join.entry)}">{name}</a>'
            if is_here
            else f'<span class="quiet">{name}</span>'
        )

    def _branch(self, number: int, depth: int) -> Iterator[str]:
        """A branch by its first words, with its stops if it is part of the page."""
        words = esc(self._first_words(number))
        if self._source.branch != "all":
            yield f'<li class="off"><span class="quiet">○ {words} (not in this page)</span></li>'
            return
        yield f'<li class="off"><a href="#branch-{number}">{words}</a>'
        inner = [
            stop
            for stop in self._stops[number]
            if stop.label or stop.id in self._joins or stop.node in self._leaving or stop.node in self._merged
        ]
        self._stops[number] = inner
        if inner:
            yield "<ul>"
            yield from self._strand(number, depth + 1)
            yield "</ul>"
        yield "</li>"

    def _rows(self, facts: Facts) -> list[tuple[str, str]]:
        source = self._source
        used = source.used()
        scope = "" if source.branch == "all" else " (this path)"
        rows = [
            ("session", facts.id),
            ("format", f"{facts.dialect}, version {facts.version}"),
            ("file", facts.location),
            ("folder", facts.folder),
            ("git branch", facts.git_branch or ""),
            ("created", stamp(facts.created)),
            ("forked from", facts.forked_from),
            ("entries", f"{source.shown:,} of {facts.entries:,} in this page"),
            ("branches", f"{facts.branches:,}"),
            (f"tokens{scope}", f"{used.input:,} in, {used.output:,} out, {used.cached:,} cached"),
            ("requests", f"{used.requests:,}"),
            ("cost", f"${used.cost:,.4f}" if used.cost else ""),
            ("problems", str(len(source.problems()) or "")),
            *((kind, f"{name} {path}".strip()) for kind, name, path in source.related_files()),
            ("masked", source.redactor.report.removeprefix("masked ") if source.redactor is not None else ""),
        ]
        return [(name, value) for name, value in rows if value]
