"""OpenCode: sessions in an SQLite database, in JSON files before version 1.2, written as a file for its import command.

A session has no branches. A revert hides the messages from one on until the next prompt, which deletes them; they are
after the current entry here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.core.context import Context
from sessiontree.core.entries import Entry, Header
from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.dialects.canonical import CanonicalEntry, Destination, SessionMeta
from sessiontree.dialects.client import Client
from sessiontree.dialects.contract import (
    CERTAIN,
    PREVIOUS,
    Envelope,
    Facts,
    IndexedLines,
    LineMarks,
    ReadOptions,
    Reparenting,
    SessionFile,
    Traits,
)
from sessiontree.dialects.defaults import DefaultFacts, DialectBase, head_records, iter_resolved
from sessiontree.dialects.opencode import locations
from sessiontree.dialects.opencode.content import info_of, mapping, string
from sessiontree.dialects.opencode.entries import ROLES, decode_fields, entry_type, parse_fields, parse_header
from sessiontree.dialects.storage import Storage

if TYPE_CHECKING:
    from sessiontree.dialects.opencode.encoder import OpenCodeEncoder

_placeholder_title = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT")
_LIKELY = 60


class OpenCodeFacts(DefaultFacts):
    @property
    def title(self) -> str | None:
        title = super().title
        return None if title and _placeholder_title.match(title) else title

    @property
    def given_title(self) -> str | None:
        return self.title


class OpenCode(DialectBase):
    name = "opencode"
    traits = Traits(
        has_header=True,
        is_linear=True,
        is_writable=True,
        marks=LineMarks(usage=b'"tokens"', tools=(b'"tool"',), prompts=(b'"role":"user"', b'"role": "user"')),
        path_markers=("/opencode/",),
        session_names=(".db", ".json"),
        skipped_folders=locations.SKIPPED_FOLDERS,
    )

    @property
    def client(self) -> Client:
        from sessiontree.dialects.opencode.client import CLIENT

        return CLIENT

    # Format

    def recognize(self, head: bytes) -> int:
        score = 0
        for record in head_records(head):
            info = info_of(record)
            if string(info, "id").startswith("ses_") or string(info, "sessionID").startswith("ses_"):
                return CERTAIN
            if info and isinstance(record.get("parts"), list) and info.get("role") in ROLES:
                score = _LIKELY
        return score

    def decode_line(self, fields: dict[str, Any], node: int) -> Envelope | Header | None:
        info = info_of(fields)
        id = info.get("id")
        if not isinstance(id, str) or not id:
            return None
        if info.get("role") in ROLES:
            previous = fields.get("previous")
            return Envelope(entry_type(fields), id, previous if isinstance(previous, str) else PREVIOUS)
        return parse_header(info) if "role" not in info and "parts" not in fields else None

    def parse(self, raw: bytes) -> Entry:
        return parse_fields(parse_object(raw))

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None:
        """The last message that was not reverted."""
        leaf = super().find_leaf(lines, read_options)
        reverted = _revert_of(lines)
        node = None if reverted is None else lines.tree.node_of.get(reverted[0])
        if node is None or leaf is None:
            return leaf
        return node if reverted is not None and reverted[1] else lines.tree.parent(node)

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        from sessiontree.dialects.opencode.context import build_sent_context

        reverted = _revert_of(lines)
        cut = reverted if reverted is not None and reverted[1] else None
        return build_sent_context(lines, self.find_path(lines, leaf, read_options), cut)

    def find_reparentings(self, lines: IndexedLines) -> list[Reparenting]:
        """Include lost messages: of each, parts are left between two messages that follow each other."""
        parents = lines.tree.parents()
        found = [
            Reparenting(node, node - 1, "parts of a lost message come before it")
            for node in range(1, len(parents))
            if parents[node] == parents[node - 1] and lines.types[node] == lines.types[node - 1] == "message"
        ]
        return found or super().find_reparentings(lines)

    def facts(self, lines: IndexedLines) -> Facts:
        return OpenCodeFacts(lines)

    # Codec

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        for _, fields in iter_resolved(lines, nodes):
            yield from decode_fields(fields)

    def must_decode_together(self, lines: IndexedLines, node: int, child: int) -> bool:
        return False

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> OpenCodeEncoder:
        from sessiontree.dialects.opencode.encoder import OpenCodeEncoder

        return OpenCodeEncoder(meta, lines)

    def render_header(self, header: Header) -> bytes:
        from sessiontree.dialects.opencode.encoder import session_info

        meta = SessionMeta(header.id, header.timestamp, header.cwd, header.title)
        return render_json({"info": session_info(meta)})

    # Locations

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return locations.session_roots(environment)

    def storage(self, path: str) -> Storage:
        return locations.storage(path)

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return locations.classify_file(root, relative)

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        return locations.find_destination(meta, environment)


def _revert_of(lines: IndexedLines) -> tuple[str, str] | None:
    """The first reverted message, and the first reverted part of it, empty for all; None without a revert."""
    header = next(iter(lines.raw_lines()), b"")
    if b'"revert"' not in header:
        return None
    reverted = mapping(info_of(parse_object(header)), "revert")
    message = string(reverted, "messageID")
    return (message, string(reverted, "partID")) if message else None


OPENCODE = OpenCode()
