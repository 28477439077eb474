"""The native format: Pi's version 3 plus our own entry types, marked by `"sessiontree"` in the header.

Unlike in Pi's files, bookkeeping (labels, names, usage, settings) never moves the leaf. A move of the leaf is an entry
of its own, so the file records the current entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from sessiontree.core.context import Rules
from sessiontree.core.entries import Header
from sessiontree.dialects.canonical import CanonicalEntry, Destination, SessionMeta
from sessiontree.dialects.client import Client
from sessiontree.dialects.contract import CERTAIN, Envelope, IndexedLines, SessionFile
from sessiontree.dialects.defaults import head_records
from sessiontree.dialects.native import locations
from sessiontree.dialects.omp.header import SLOT, is_title_slot
from sessiontree.dialects.pi.content import hidden_line, is_never_sent
from sessiontree.dialects.pi.dialect import PiFamily
from sessiontree.dialects.pi.encoder import BOOKKEEPING, EncodedLine, PiFamilyEncoder

FORMAT = 1
"""Version of our additions to the format; increased when an addition is incompatible with older readers."""


_BOOKKEEPING = BOOKKEEPING | {SLOT}
"""With the title slot, which oh-my-pi puts before the header when it rewrites a native file."""


class Native(PiFamily):
    name = "native"
    rules = Rules(resets=True, explicit_model_wins=True, default_thinking="off")
    traits = msgspec.structs.replace(
        PiFamily.traits, bookkeeping=_BOOKKEEPING, uses_home_blobs=True, path_markers=("/sessiontree/sessions/",)
    )

    @property
    def client(self) -> Client:
        from sessiontree.dialects.native.client import CLIENT

        return CLIENT

    def recognize(self, head: bytes) -> int:
        header = next(filter(self.is_header, head_records(head)), None)
        if header is not None and "sessiontree" in header:
            return CERTAIN
        return 1 if is_torn_start(head) else 0

    def decode_line(self, fields: dict[str, Any], node: int) -> Envelope | Header | None:
        if "id" not in fields and is_title_slot(fields):
            return Envelope(SLOT, is_metadata=True)
        return super().decode_line(fields, node)

    def iter_moves(self, lines: IndexedLines) -> Iterator[tuple[int, int | None]]:
        types, tree = lines.types, lines.tree
        for node in range(len(types) - 1, -1, -1):
            if types[node] == "leaf":
                if not tree.is_orphan(node):  # a move to a lost entry has no effect
                    yield node, tree.parent(node)
            elif types[node] not in _BOOKKEEPING:
                yield node, node

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> PiFamilyEncoder:
        return NativeEncoder(self, meta, lines)

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


class NativeEncoder(PiFamilyEncoder):
    """Encodes a native session. Almost every canonical entry is a native one already."""

    passive_types = Native.traits.passive_types
    _current: str | None = None

    def encode_line(self, entry: CanonicalEntry) -> EncodedLine:
        if is_never_sent(entry):
            return hidden_line(entry)
        return EncodedLine(entry.kind, entry.fields)

    def track_line(self, kind: str, id: str, parent: str | None) -> None:
        super().track_line(kind, id, parent)
        if kind == "leaf":
            self._current = parent
        elif kind not in BOOKKEEPING:
            self._current = id

    def is_current(self, leaf: str | None) -> bool:
        # Bookkeeping is ignored anywhere, as in a file that Pi wrote.
        node = leaf
        while node != self._current and node in self._passive:
            node = self._parents[node]
        return node == self._current


def is_torn_start(head: bytes) -> bool:
    """Whether a file is empty or has only the start of a first line, as after a crash during creation."""
    if b"\n" in head:
        return False
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    beginning = b'{"type":"'
    return line.startswith(beginning) if len(line) > len(beginning) else beginning.startswith(line)


NATIVE = Native()
