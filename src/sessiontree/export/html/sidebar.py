"""The sidebar of the page: an outline of prompts and branches with links, and facts about the session."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from sessiontree.branches.merge_records import MergeRecord, find_merges
from sessiontree.export.escape import anchor, stamp
from sessiontree.export.html.branch_graph import MAX_ROWS, GraphRow
from sessiontree.export.record_builder import gist
from sessiontree.export.records import Call, Record
from sessiontree.export.source import Facts, Source
from sessiontree.models.cost_estimate import cost_total, describe_cost

_DEEPEST = 8
"""Indentation limit of nested branches; deeper ones are appended at the end, starting from the left again."""
_ROW_TEXT = 60


class Stop(Struct):
    """A linked entry in the outline."""

    node: int
    id: str
    who: str
    text: str
    label: str | None = None


class OutlineItem(Struct, frozen=True):
    """A line of the outline as it is shown."""

    depth: int
    text: str
    target: str | None
    """The element it links to; None if that is not part of the page."""
    is_active: bool = False
    who: str = ""
    label: str | None = None
    is_here: bool = False
    merged_from: str = ""
    merged_target: str | None = None


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
        self.rows: dict[int, GraphRow] = {}
        """Kind and text of the entries that were rendered, for the picture of branches."""
        self.nested: frozenset[int] = frozenset()
        """Strands of sub-agents that are part of the page, inside of their calls."""
        self._here = source.session.node_of(source.session.leaf)
        self._joins = find_merges(source.session)
        self._merged = {
            source.session.node_of(join.entry)
            for join in self._joins.values()
            if join.session is None and join.entry in source.session
        }
        """Last entries of branches that were merged into others."""

    def first_words(self, number: int) -> str:
        """The first words of a strand."""
        words = self._words.get(number)
        if words is None:
            record = self._source.first_record(self._source.outline.strands[number])
            words = (gist(record) if record is not None else "") or "(no text)"
            self._words[number] = words
        return words

    def note(self, number: int, record: Record) -> None:
        """Add a record to the outline if it is a prompt, a summary, a label, a fork or the current entry."""
        stops = self._stops[number]
        is_join = record.id in self._joins
        text = gist(record, _ROW_TEXT) or record.title
        if not record.mark and len(self.rows) < MAX_ROWS:
            self.rows[record.node] = GraphRow("merge" if is_join else record.who, text)
        if is_join or record.who in ("user", "summary") or record.label or self._is_landmark(record.node):
            stops.append(Stop(record.node, record.id, record.who, text, record.label))
        for piece in record.pieces:
            if not isinstance(piece, Call) or (result := piece.result) is None:
                continue
            tool = result.name or piece.name  # in some formats, only the call names the tool
            if len(self.rows) < MAX_ROWS:
                self.rows[result.node] = _result_row(tool)
            if result.label or self._is_landmark(result.node):
                stops.append(Stop(result.node, result.id, "tool", f"result of {tool}", result.label))

    def _is_landmark(self, node: int) -> bool:
        return node in self._leaving or node == self._here or node in self._merged

    def outline(self) -> Iterator[OutlineItem]:
        """The lines of the outline, each with its depth: branches follow the entry that they fork from."""
        yield from self._strand(0, 0)
        for number in self._leaving.get(None, ()):
            yield from self._branch(number, 0)
        while self._deeper:
            yield from self._branch(self._deeper.popleft(), 0)

    def _strand(self, number: int, depth: int) -> Iterator[OutlineItem]:
        """The stops of a strand, each followed by the branches that fork there."""
        is_active = self._source.outline.strands[number].active
        for stop in self._stops[number]:
            join = self._joins.get(stop.id)
            yield OutlineItem(
                depth,
                stop.text,
                anchor(stop.id),
                is_active,
                stop.who,
                stop.label,
                stop.node == self._here,
                self._came_from(join),
                self._merged_target(join),
            )
            leaving = self._leaving.get(stop.node, ())
            if depth >= _DEEPEST:
                self._deeper += leaving
            else:
                for branch in leaving:
                    yield from self._branch(branch, depth + 1)

    def _came_from(self, join: MergeRecord | None) -> str:
        """The second parent of a merge: the end of the merged branch."""
        if join is None:
            return ""
        where = f"{join.session[:40]} " if join.session else ""
        return f"⇠ merged from {where}{join.entry[:40]}"

    def _merged_target(self, join: MergeRecord | None) -> str | None:
        if join is None or join.session is not None or self._source.branch != "all":
            return None
        return anchor(join.entry) if join.entry in self._source.session else None

    def _branch(self, number: int, depth: int) -> Iterator[OutlineItem]:
        """A branch by its first words, with its stops if it is part of the page."""
        words = self.first_words(number)
        if self._source.branch != "all" and number not in self.nested:
            yield OutlineItem(depth, f"{words} (not in this page)", None)
            return
        yield OutlineItem(depth, words, f"branch-{number}")
        self._stops[number] = [
            stop
            for stop in self._stops[number]
            if stop.label or stop.id in self._joins or stop.node in self._leaving or stop.node in self._merged
        ]
        yield from self._strand(number, depth + 1)

    def facts(self, facts: Facts) -> list[tuple[str, str]]:
        """Names and values of the facts that are known."""
        source = self._source
        used = source.used()
        scope = "" if source.branch == "all" else " (this path)"
        cost = describe_cost(cost_total(used.cost, used.unpriced)) if used.requests else ""
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
            (f"cost{scope}", cost),
            ("problems", str(len(source.problems()) or "")),
            *((kind, f"{name} {path}".strip()) for kind, name, path in source.related_files()),
            ("masked", source.redactor.report.removeprefix("masked ") if source.redactor is not None else ""),
        ]
        return [(name, value) for name, value in rows if value]


@functools.lru_cache(256)  # few tools, many results
def _result_row(name: str) -> GraphRow:
    return GraphRow("tool", name)  # the picture puts "result: " before it
