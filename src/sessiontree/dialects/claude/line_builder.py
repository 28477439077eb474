"""Build the lines of one session: their common fields, ids and times."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from sessiontree.core.entries import milliseconds
from sessiontree.core.ids import timestamp
from sessiontree.dialects.canonical import CanonicalEntry, SessionMeta
from sessiontree.dialects.claude.content import native_blocks
from sessiontree.dialects.claude.decode import find_common_fields
from sessiontree.dialects.claude.decode_lines import DERIVED_FIELDS, VERSION, CommonFields
from sessiontree.dialects.claude.header import find_git_branch
from sessiontree.dialects.claude.locations import generate_uuid, is_uuid, session_uuid
from sessiontree.dialects.claude.records import Fields, number_in, object_in, string_in
from sessiontree.dialects.contract import IndexedLines, is_metadata_id
from sessiontree.dialects.passthrough import PASSTHROUGH

_LATEST_LINES = 64
_UUID_LENGTH = 36
_iso_time = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)\Z")

# Fields that client fields from passthrough data never overwrite: the builder or the encoder sets them.
_BUILT_FIELDS = DERIVED_FIELDS | {"content", "message", "subtype", "isCompactSummary", "compactMetadata"}


class Call(Struct, frozen=True, gc=False):
    """A tool call that was written."""

    canonical_id: str
    """The id in the canonical entry. Some models use the same one for several calls."""
    id: str
    name: str
    line: str
    """The uuid of the shard that holds it."""


class PlacedEntry(Struct, frozen=True, gc=False):
    """The lines of an entry that is in the tree."""

    parent: str | None
    """The entry before it."""
    uuids: tuple[str, ...]
    """Its lines, in order."""
    main: str
    """The line that has the entry's own id."""
    calls: tuple[Call, ...] = ()
    response: str | None = None
    """Of a result: the response that it belongs to."""
    call_line: str = ""
    """Of a result: the line of its call."""
    is_separated: bool = False
    """Whether its parent line is a boundary of its own, and not a line of the entry before it."""
    prompt: str = ""
    kept: tuple[str, ...] | None = None
    """Of a compaction: the lines before it that it kept."""
    is_turn: bool = True
    """Whether one of its lines is a user or assistant line."""


class LineBuilder:
    """Builds the lines of one session: a new one, or the one that `lines` holds."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None) -> None:
        self._lines = lines
        self.session = session_uuid(meta.id)
        self.cwd = meta.cwd
        self.version = VERSION
        self.git_branch = meta.git_branch or ""
        self.common: CommonFields | None = None
        """The common fields of the session, once its first line is built."""
        self._forked_from = meta.forked_from
        self._used_ids: set[str] = set()
        self._time = meta.timestamp if _iso_time.match(meta.timestamp) else ""
        if lines is not None:
            self._continue(lines)
        self._namespace = (uuid.UUID(self.session) if is_uuid(self.session) else uuid.NAMESPACE_OID).bytes

    def _continue(self, lines: IndexedLines) -> None:
        """Take the common fields from the latest lines of the file."""
        chain = [node for node, id in enumerate(lines.tree.ids) if not is_metadata_id(id)][-_LATEST_LINES:]
        latest = list(reversed(lines.fields(chain)))
        self.session = _first_string(latest, "sessionId") or self.session
        self.cwd = _first_string(latest, "cwd") or self.cwd
        self.version = _first_string(latest, "version") or self.version
        self.git_branch = _first_string(latest, "gitBranch") or find_git_branch(lines) or self.git_branch
        self._forked_from = None
        if chain:
            self.common = find_common_fields(lines)

    # Ids and times

    def assign_uuids(self, entry: CanonicalEntry, count: int, *, last: bool = False) -> list[str]:
        """Return uuids for the lines of an entry. The first line, or the last, gets the entry's own id.

        New ones derive from the entry's id, so that the same session converted twice gives the same lines.
        """
        name = entry.id or ("" if self._lines is not None else f"line {len(self._used_ids)}")
        is_own = self._is_free(entry.id)
        if count == 1:
            id = entry.id if is_own else self.generate_id(name)
            self._used_ids.add(id)
            return [id]
        uuids = list(entry.aliases[: count - 1]) if is_own else []
        if len({entry.id, *uuids}) != len(uuids) + 1 or not all(map(self._is_free, uuids)):
            uuids = []
        uuids += [self.generate_id(name and f"{name}#{number}") for number in range(len(uuids) + 1, count)]
        uuids.insert(len(uuids) if last else 0, entry.id if is_own else self.generate_id(name))
        self._used_ids.update(uuids)
        return uuids

    def _is_free(self, id: str) -> bool:
        if len(id) != _UUID_LENGTH or not is_uuid(id):
            return False
        return id not in self._used_ids and (self._lines is None or id not in self._lines.tree.node_of)

    def generate_id(self, name: str) -> str:
        """Return an unused uuid derived from a name; a random one for an empty name."""
        id = generate_uuid(self._namespace, name) if name else str(uuid.uuid4())
        while id in self._used_ids or (self._lines is not None and id in self._lines.tree.node_of):
            id = generate_uuid(self._namespace, f"{id} {name}")
        return id

    def metadata_entry_id(self, entry: CanonicalEntry) -> str:
        """Return the id of an entry on a metadata line: its own, or one derived from its content."""
        if entry.id:
            return entry.id
        id = self.generate_id("" if self._lines is not None else f"{entry.kind} {entry.fields}")
        self._used_ids.add(id)  # another branch may have the same content
        return id

    def time(self, entry: CanonicalEntry) -> str:
        """Return an entry's time in the form that the client reads; without one, that of the line before."""
        if _iso_time.match(entry.timestamp):
            self._time = entry.timestamp
        else:
            ms: float | None = milliseconds(entry.timestamp)
            if ms is None:
                ms = number_in(object_in(entry.fields, "message"), "timestamp")
            self._time = _format_time(ms) or (self._time if self._lines is None else timestamp()) or timestamp()
        return self._time

    # Lines

    def chain_line(
        self, kind: str, id: str, parent: str | None, time: str, payload: Fields, client_fields: Fields
    ) -> Fields:
        """Build a chain line with the fields that the client writes, in its order.

        Other readers need more fields than the client does, so all are written except `entrypoint`: the client's picker
        hides sessions that an SDK wrote.
        """
        if self.common is None and string_in(client_fields, "version"):
            self.version = client_fields["version"]
        line = {
            "parentUuid": parent,
            "isSidechain": False,
            "type": kind,
            **payload,
            "uuid": id,
            "timestamp": time,
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.session,
            "version": self.version,
            "gitBranch": self.git_branch,
        }
        if client_fields:
            line |= {
                name: value
                for name, value in client_fields.items()
                if name not in _BUILT_FIELDS and name not in payload
            }
        if self.common is None:
            self.common = CommonFields.of(line)
            if self._forked_from is not None:
                origin = self._forked_from
                line["forkedFrom"] = {"sessionId": origin.session, "messageUuid": origin.entry}
        return line

    def entry_line(self, entry: Fields, time: str, **more: Any) -> Fields:
        """Build a metadata line of our own type, which the client skips, with an entry in the native form."""
        return {"type": PASSTHROUGH, "sessionId": self.session, "timestamp": time, "entry": entry, **more}

    def metadata_line(self, kind: str, **fields: Any) -> Fields:
        """Build one of the client's own metadata lines."""
        return {"type": kind, **fields, "sessionId": self.session}


def build_compact_metadata(fields: Fields, is_own: bool, kept: Sequence[str], anchor: str) -> Fields:
    """Return a boundary's `compactMetadata`: token counts, and the lines that it preserves after an anchor."""
    metadata: Fields = {"trigger": "manual"}
    if is_own:
        metadata |= object_in(fields, "details")
    for name, key in (("tokensBefore", "preTokens"), ("tokensAfter", "postTokens")):
        tokens = number_in(fields, name)
        if tokens is not None:
            metadata[key] = tokens
    metadata.setdefault("preTokens", 0)
    if kept:
        metadata["preservedSegment"] = {"headUuid": kept[0], "anchorUuid": anchor, "tailUuid": kept[-1]}
        metadata["preservedMessages"] = {"anchorUuid": anchor, "uuids": list(kept), "allUuids": list(kept)}
    return metadata


def find_calls(lines: Sequence[Fields], message: Fields, positions: Sequence[int]) -> tuple[Call, ...]:
    """Return the tool calls on the lines of a response; `positions` are those of their native blocks."""
    blocks = native_blocks(message.get("content"))
    calls: list[Call] = []
    for line, at in zip(lines, positions, strict=False):
        (block,) = line["message"]["content"]
        id, name = string_in(block, "id"), string_in(block, "name")
        # A block of the client that is not a complete call is copied as it is.
        if block["type"] == "tool_use" and id and name and isinstance(blocks[at], dict):
            calls.append(Call(string_in(blocks[at], "id") or "", id, name, line["uuid"]))
    return tuple(calls)


def _first_string(lines: Sequence[Fields], key: str) -> str:
    return next((found for line in lines if (found := string_in(line, key))), "")


def _format_time(ms: float | None) -> str:
    if ms is None:
        return ""
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
