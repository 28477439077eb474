"""Lines for a copy of a session: the path of a fork, the whole of a migrated file. Reads a journal, writes nothing.

A line that needs no change is copied byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sessiontree.core.entries import Compaction, Header, Label
from sessiontree.core.ids import new_entry_id, timestamp
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.side_branches import Sides
from sessiontree.session.journal import Journal

_ENVELOPE = {"type", "id", "parentId", "timestamp"}


def forked_lines(journal: Journal, header: Header, leaf: int | None, title: str | None) -> Iterator[bytes]:
    """The lines of a fork, each with its LF: what stands at the top of a session, then the history of `leaf`."""
    start = SessionMeta(
        header.id,
        header.timestamp,
        header.cwd,
        title,
        forked_from=header.forked_from,
        origin=journal.location,
        large_content=header.large_content,
    )
    dialect = journal.dialect
    if not dialect.one_line_per_entry:
        yield from (line + b"\n" for line in dialect.encode_fork(journal, leaf, start))
        return
    yield from (line + b"\n" for line in dialect.encoder(start).prologue())
    yield from _path_with_labels(journal, leaf)


def _path_with_labels(journal: Journal, leaf: int | None) -> Iterator[bytes]:
    """Each line of a path, followed by the labels that were set there.

    In that order the last line is the leaf or hangs on it, so that a reader that takes the last line lands there too.
    """
    nodes = journal.tree.path(leaf)
    passthroughs, strays = _labels_to_copy(journal, set(nodes))
    yield from _current_lines(journal, [copied for node in nodes for copied in (node, *passthroughs.get(node, ()))])
    parent = None if leaf is None else journal.tree.ids[leaf]
    for label in strays:
        id = new_entry_id(journal.tree.node_of)
        fields = {"targetId": label.target_id, "label": label.label}
        yield journal.dialect.render_entry("label", id, parent, label.timestamp, fields) + b"\n"
    if Sides(journal).start_of(leaf) is not None:  # what is written in a side branch moves nobody
        id = new_entry_id(journal.tree.node_of)
        yield journal.dialect.render_entry("leaf", id, parent, timestamp(), {"targetId": parent}) + b"\n"


def migrated_lines(journal: Journal) -> Iterator[bytes]:
    """The whole file in the current version; what could not be read stays where it is, as it is."""
    entries = {journal.span(node).start: node for node in range(len(journal))}
    fragments = {fragment.start: fragment.raw for fragment in journal.fragments}
    yield render_json({**journal.header_fields, "version": journal.dialect.version}) + b"\n"
    for start in sorted({*entries, *fragments}):
        if start in entries:
            yield from _current_lines(journal, [entries[start]])
        else:
            yield fragments[start] + b"\n"


def _current_lines(journal: Journal, nodes: Sequence[int]) -> Iterator[bytes]:
    """Lines of entries with their LF: as they stand, or brought to the current version if theirs is older."""
    is_current = journal.version == journal.dialect.version
    for node, raw in zip(nodes, journal.iter_raw(nodes), strict=True):
        yield (raw if is_current else _migrated(journal, node, raw)) + b"\n"


def _migrated(journal: Journal, node: int, raw: bytes) -> bytes:
    """An entry of version 1 or 2 as a line of version 3: its id and parent, the bound by id, the role's new name."""
    fields = journal.fields_of(raw)
    fields.pop("firstKeptEntryIndex", None)
    (entry,) = journal.entries([node])
    if isinstance(entry, Compaction) and entry.first_kept_entry_id is not None:
        fields["firstKeptEntryId"] = entry.first_kept_entry_id
    message = fields.get("message")
    if isinstance(message, dict) and message.get("role") == "hookMessage":
        fields["message"] = {**message, "role": "custom"}
    parent = journal.tree.parent(node)
    return journal.dialect.render_entry(
        journal.types[node],
        journal.tree.ids[node],
        None if parent is None else journal.tree.ids[parent],
        entry.timestamp,
        {name: value for name, value in fields.items() if name not in _ENVELOPE},
    )


def _labels_to_copy(journal: Journal, on_path: set[int]) -> tuple[dict[int, list[int]], list[Label]]:
    """Labels of entries on the path: label entries by the path's node they hang on, and those that hang elsewhere."""
    nodes = [node for node, kind in enumerate(journal.types) if kind == "label"]
    last: dict[str, tuple[int, Label]] = {}
    for node, entry in zip(nodes, journal.entries(nodes), strict=True):
        if isinstance(entry, Label):
            last[entry.target_id] = (node, entry)
    passthroughs: dict[int, list[int]] = {}
    strays: list[Label] = []
    for target, (node, label) in last.items():
        if node in on_path or not label.label or journal.tree.node_of.get(target) not in on_path:
            continue
        parent = journal.tree.parent(node)
        if parent is not None and parent in on_path:
            passthroughs.setdefault(parent, []).append(node)
        else:
            strays.append(label)
    return passthroughs, strays
