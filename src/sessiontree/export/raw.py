"""Machine-readable export: one JSON object with canonical entries, or the session's own lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from sessiontree.core.entries import ConfigChange, Entry, Label, SessionInfo
from sessiontree.core.jsonio import native_fields, render_json
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.export.source import Source
from sessiontree.session.reader import Reader
from sessiontree.stores.contract import read_bytes
from sessiontree.views.json import describe_fragment, describe_problem, describe_shown

SCHEMA_VERSION = 1
_CHUNK = 256 * 1024


def render_object(source: Source) -> Iterator[bytes]:
    """One JSON object on one line; its entries are yielded one by one."""
    facts = source.facts()
    head: dict[str, Any] = {
        "schemaVersion": SCHEMA_VERSION,
        "session": {
            "id": facts.id,
            "name": facts.title or None,
            "dialect": facts.dialect,
            "version": facts.version,
            "path": facts.location,
            "cwd": facts.folder,
            "created": facts.created,
            "gitBranch": facts.git_branch,
            "forkedFrom": facts.forked_from or None,
            "leaf": facts.leaf,
            "entries": facts.entries,
            "branches": facts.branches,
            "labels": source.labels,
        },
        "branch": source.branch,
    }
    yield render_json(head)[:-1] + b',"entries":['
    separator = b""
    for number, strand in enumerate(source.strands):
        for _, entry in source.iter_entries(strand.nodes):
            yield separator + render_json(_described(entry, source, active=strand.active, strand=number))
            separator = b","
    if source.branch == "all":
        for _, entry in source.iter_entries(source.outline.outside):
            yield separator + render_json(_described(entry, source, active=False, strand=None))
            separator = b","
    tail = {
        "fragments": [describe_fragment(fragment) for fragment in source.fragments()],
        "problems": [describe_problem(problem) for problem in source.problems()],
        "beside": [{"kind": kind, "name": name, "place": place} for kind, name, place in source.related_files()],
        "usage": msgspec.to_builtins(source.used()),
        "masked": None if source.redactor is None else source.redactor.counts,
        "maskedByRule": None if source.redactor is None else dict(source.redactor.by_rule),
    }
    yield b"]," + render_json(tail)[1:] + b"\n"


def _described(entry: Entry, source: Source, *, active: bool, strand: int | None) -> dict[str, Any]:
    """An entry as in `show --json`, with its full content in native form under `entry`."""
    return {
        **describe_shown(entry),
        "label": source.labels.get(entry.id),
        "active": active,
        "strand": strand,
        "entry": native_fields(entry),
    }


# Raw lines


def render_lines(source: Source) -> Iterator[bytes]:
    """The lines of the selected branches, unchanged; for all branches, the whole file."""
    lines = _every_line(source) if source.branch == "all" else _lines_of_path(source)
    if source.redactor is not None:
        mask = source.redactor.line
        lines = (mask(line.removesuffix(b"\n")) + line[len(line.removesuffix(b"\n")) :] for line in lines)
    elif source.branch == "all":
        lines = _bytes(source)
    yield from lines


def _bytes(source: Source) -> Iterator[bytes]:
    """The file as of when the session was opened."""
    journal = source.session.journal
    for start in range(0, journal.size, _CHUNK):
        yield read_bytes(journal.store, start, min(_CHUNK, journal.size - start))


def _every_line(source: Source) -> Iterator[bytes]:
    """Every line with its LF, if it has one."""
    rest = b""
    for chunk in _bytes(source):
        *complete, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in complete)
    if rest:
        yield rest


def _lines_of_path(source: Source) -> Iterator[bytes]:
    """Header, path and related metadata lines in file order, so that the copy opens at the same current entry."""
    session, journal = source.session, source.session.journal
    if journal.header_span is not None:
        span = journal.header_span
        yield read_bytes(journal.store, span.start, span.end - span.start) + b"\n"
    path = source.outline.strands[0].nodes
    on_path = bytearray(len(session))  # a set takes much more memory in a huge session
    for node in path:
        on_path[node] = True
    parents = _outside_parents(session, on_path)
    nodes = [node for node, is_on_path in enumerate(on_path) if is_on_path or node in parents]
    for node, raw in zip(nodes, journal.iter_lines(nodes), strict=True):
        parent = parents.get(node)
        yield (raw if parent is None else session.dialect.with_ids(raw, parent=parent)) + b"\n"


def _outside_parents(session: Reader, on_path: bytearray) -> dict[int, str | None]:
    """Lines outside of the path that belong to the session or to an entry of the path, with the parent to set.

    A line whose parent is on another branch (a label, a name) gets a parent on the path; nothing else changes.
    """
    journal, bookkeeping = session.journal, session.dialect.traits.bookkeeping
    node_of = journal.tree.node_of

    def is_on_path(id: str) -> bool:
        node = node_of.get(id)
        return node is not None and bool(on_path[node])

    outside = [
        node
        for node, kind in enumerate(journal.types)
        if not on_path[node] and (is_metadata_id(journal.tree.ids[node]) or kind in bookkeeping)
    ]
    found: dict[int, str | None] = {}
    for node, entry in zip(outside, journal.iter_entries(outside), strict=True):
        if isinstance(entry, Label) and not is_on_path(entry.target_id):
            continue
        if is_metadata_id(journal.tree.ids[node]) or entry.parent_id is None or is_on_path(entry.parent_id):
            found[node] = None
        elif isinstance(entry, Label):
            found[node] = entry.target_id
        elif isinstance(entry, SessionInfo | ConfigChange):
            found[node] = session.leaf
    return found
