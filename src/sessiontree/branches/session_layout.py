"""The layout of a session's tree, with its merges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sessiontree.branches.merge_records import MergeRecord, find_merges
from sessiontree.core.layout import Layout, LayoutColumns
from sessiontree.session.reader import Reader


def find_layout(session: Reader, merges: Mapping[str, MergeRecord] | None = None) -> Layout:
    """Lay out a session. `merges` are its merges (`find_merges`), if they are known already."""
    layout = Layout()
    extend_layout(session, layout, merges)
    return layout


def extend_layout(session: Reader, layout: Layout, merges: Mapping[str, MergeRecord] | None = None) -> None:
    """Add the entries that were appended to a session since it was laid out."""
    known = find_merges(session) if merges is None else merges
    columns = _columns(session)
    first = len(layout)
    layout.responses = list(columns.responses[:first])  # a format may find them only once a response has siblings
    layout.extend(columns[first:] if first else columns, _joins(session, known))


def _columns(session: Reader) -> LayoutColumns:
    columns = session.dialect.layout_columns(session.journal)
    if not session.read_options.recovered:
        return columns
    parents = list(columns.parents)
    for found in session.dialect.find_reparentings(session.journal):
        parents[found.node] = found.parent
    return LayoutColumns(parents, columns.placed, columns.responses)


def _joins(session: Reader, merges: Mapping[str, MergeRecord]) -> Iterator[tuple[int, int]]:
    """The merges within the session as edges between nodes."""
    tree = session.journal.tree
    for id, record in merges.items():
        source = tree.find_before(record.entry, tree.node_of[id]) if record.session is None else None
        if source is not None:
            yield source, tree.node_of[id]
