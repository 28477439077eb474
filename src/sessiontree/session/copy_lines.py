"""Generate the lines of a fork or of a migrated file from a journal. Unchanged lines are copied byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sessiontree.core.entries import Compaction, Header, Label
from sessiontree.core.ids import new_entry_id, timestamp
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.side_branches import SideBranches
from sessiontree.session.journal import Journal

_ENVELOPE = {"type", "id", "parentId", "timestamp"}


def forked_lines(journal: Journal, header: Header, leaf: int | None, title: str | None) -> Iterator[bytes]:
    """Lines of a fork, with LF: the header, then the history of `leaf`."""
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
    if not dialect.traits.one_line_per_entry:
        yield from (line + b"\n" for line in dialect.encode_fork(journal, leaf, start))
        return
    yield from (line + b"\n" for line in dialect.encoder(start).prologue())
    yield from _path_with_labels(journal, leaf)


def _path_with_labels(journal: Journal, leaf: int | None) -> Iterator[bytes]:
    """Lines of a path, each followed by the labels that are its children."""
    # In this order the last line is the leaf or a child of it. So readers that use the last line as the leaf find the
    # right entry.
    nodes = journal.tree.path(leaf)
    path_labels, other_labels = _labels_to_copy(journal, set(nodes))
    yield from _current_lines(journal, [copied for node in nodes for copied in (node, *path_labels.get(node, ()))])
    parent = None if leaf is None else journal.tree.ids[leaf]
    for label in other_labels:
        id = new_entry_id(journal.tree.node_of)
        fields = {"targetId": label.target_id, "label": label.label}
        yield journal.dialect.render_entry("label", id, parent, label.timestamp, fields) + b"\n"
    if SideBranches(journal).start_of(leaf) is not None:  # entries of a side branch do not make it current, a move does
        id = new_entry_id(journal.tree.node_of)
        yield journal.dialect.render_entry("leaf", id, parent, timestamp(), {"targetId": parent}) + b"\n"


def migrated_lines(journal: Journal) -> Iterator[bytes]:
    """All lines of the file in the current version; unreadable ones stay in place, unchanged."""
    entries = {journal.span(node).start: node for node in range(len(journal))}
    fragments = {fragment.start: fragment.raw for fragment in journal.fragments}
    yield render_json({**journal.header_fields, "version": journal.dialect.traits.version}) + b"\n"
    for start in sorted({*entries, *fragments}):
        if start in entries:
            yield from _current_lines(journal, [entries[start]])
        else:
            yield fragments[start] + b"\n"


def _current_lines(journal: Journal, nodes: Sequence[int]) -> Iterator[bytes]:
    """Lines of entries with LF, migrated if the file has an older version."""
    is_current = journal.version == journal.dialect.traits.version
    for node, raw in zip(nodes, journal.iter_raw(nodes), strict=True):
        yield (raw if is_current else _migrated(journal, node, raw)) + b"\n"


def _migrated(journal: Journal, node: int, raw: bytes) -> bytes:
    """Migrate a line of version 1 or 2 to version 3: id and parent, first kept entry by id, the new name of a role."""
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
    """Labels of entries on the path: nodes by their parent on the path, and labels whose parent is elsewhere."""
    nodes = [node for node, kind in enumerate(journal.types) if kind == "label"]
    last: dict[str, tuple[int, Label]] = {}
    for node, entry in zip(nodes, journal.entries(nodes), strict=True):
        if isinstance(entry, Label):
            last[entry.target_id] = (node, entry)
    path_labels: dict[int, list[int]] = {}
    other_labels: list[Label] = []
    for target, (node, label) in last.items():
        if node in on_path or not label.label or journal.tree.node_of.get(target) not in on_path:
            continue
        parent = journal.tree.parent(node)
        if parent is not None and parent in on_path:
            path_labels.setdefault(parent, []).append(node)
        else:
            other_labels.append(label)
    return path_labels, other_labels
