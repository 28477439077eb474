"""The native form: Pi v3's shape plus our own types, marked by `"sessiontree"` in the header.

What differs from Pi: bookkeeping (labels, names, usage, settings) never moves the leaf, and moving the leaf is an entry
of its own, so where a session stands is in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sessiontree.core.context import Rules
from sessiontree.core.entries import Header
from sessiontree.dialects.canonical import CanonicalEntry, Destination, SessionMeta
from sessiontree.dialects.contract import CERTAIN, IndexedLines, SessionFile
from sessiontree.dialects.detect import head_records
from sessiontree.dialects.native import locations
from sessiontree.dialects.pi import PiShape
from sessiontree.dialects.pi.content import hidden, is_left_out
from sessiontree.dialects.pi.encoder import Said, ShapeEncoder

FORMAT = 1
"""The number of the native additions to the shape; grows when an addition changes what older readers would do."""

BOOKKEEPING = frozenset({"label", "session_info", "usage", "config", "custom", "model_usage", "title_change"})


class Native(PiShape):
    name = "native"
    rules = Rules(resets=True, explicit_model_wins=True, default_thinking="off")
    bookkeeping = BOOKKEEPING
    uses_home_blobs = True
    path_markers = ("/sessiontree/sessions/",)

    def recognize(self, head: bytes) -> int:
        header = next(filter(self.is_header, head_records(head)), None)
        if header is not None and "sessiontree" in header:
            return CERTAIN
        return 1 if is_torn_start(head) else 0

    def iter_moves(self, lines: IndexedLines) -> Iterator[tuple[int, int | None]]:
        types, tree = lines.types, lines.tree
        for node in range(len(types) - 1, -1, -1):
            if types[node] == "leaf":
                if not tree.is_orphan(node):  # a move to an entry that is lost says nothing
                    yield node, tree.parent(node)
            elif types[node] not in BOOKKEEPING:
                yield node, node

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> ShapeEncoder:
        return NativeScribe(self, meta, lines)

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        return locations.find_destination(meta, environment)

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return locations.session_roots(environment)

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return locations.classify_file(relative)

    def header_fields(self, header: Header) -> dict[str, Any]:
        fields = super().header_fields(header)
        if header.large_content is not None:
            fields["largeContent"] = header.large_content
        return {**fields, "sessiontree": FORMAT}


class NativeScribe(ShapeEncoder):
    """Writes a native session. Almost every item is in native words already."""

    quiet = BOOKKEEPING | {"leaf"}
    _stands: str | None = None

    def say(self, entry: CanonicalEntry) -> Said:
        return hidden(entry) if is_left_out(entry) else Said(entry.kind, entry.fields)

    def wrote(self, kind: str, id: str, parent: str | None) -> None:
        super().wrote(kind, id, parent)
        if kind == "leaf":
            self._stands = parent
        elif kind not in BOOKKEEPING:
            self._stands = id

    def stands_at(self, leaf: str | None) -> bool:
        """Bookkeeping does not count: below the leaf or anywhere else, as in a file that Pi wrote."""
        node = leaf
        while node != self._stands and node in self._quiet:
            node = self._parents[node]
        return node == self._stands


def is_torn_start(head: bytes) -> bool:
    """Nothing at all, or the beginning of a first line that was cut: a session that had no time to become one."""
    if b"\n" in head:
        return False
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    beginning = b'{"type":"'
    return line.startswith(beginning) if len(line) > len(beginning) else beginning.startswith(line)


NATIVE = Native()
