"""What a encoder knows of the lines it writes on: ids that are taken, the fields that every line has, what was written.

`Sheet` makes lines; `Placed` remembers what became of an item, by the id that its children are given as their parent.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from sessiontree.core.context import milliseconds
from sessiontree.core.ids import timestamp
from sessiontree.dialects.canonical import CanonicalEntry, SessionMeta
from sessiontree.dialects.claude.content_builder import shared_blocks
from sessiontree.dialects.claude.decode import find_base
from sessiontree.dialects.claude.decode_lines import DERIVED, VERSION, Base, base_of
from sessiontree.dialects.claude.header import find_git_branch
from sessiontree.dialects.claude.places import is_uuid, made_uuid, session_uuid
from sessiontree.dialects.claude.records import Fields, object_in, string_in
from sessiontree.dialects.contract import IndexedLines, is_metadata_id
from sessiontree.dialects.passthrough import PASSTHROUGH

_LATEST = 64
_UUID = 36
_iso = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)\Z")

# What the rest of a line may not say, as it is said elsewhere.
_SAID = DERIVED | {"content", "message", "subtype", "isCompactSummary", "compactMetadata"}


class Call(Struct, frozen=True, gc=False):
    """A tool call as it was written: the id it came with, its id and tool here, and the line it stands on."""

    given: str
    """Some models use one for several calls."""
    id: str
    name: str
    line: str


class Placed(Struct, frozen=True, gc=False):
    """An item that has a place in the tree."""

    parent: str | None
    """The item before it."""
    uuids: tuple[str, ...]
    """Its lines, in order."""
    main: str
    """The line that has the item's own id."""
    calls: tuple[Call, ...] = ()
    answers: str | None = None
    """Of a result: the response it belongs to."""
    answered_line: str = ""
    """Of a result: the line of its call."""
    is_apart: bool = False
    """Whether it hangs on a boundary of its own, and not on the lines of the item before it."""
    prompt: str = ""
    kept: tuple[str, ...] | None = None
    """Of a compaction: the lines before it that it kept."""


class LineBuilder:
    """Makes the lines of one session."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None) -> None:
        self._lines = lines
        self.session = session_uuid(meta.id)
        self.cwd = meta.cwd
        self.version = VERSION
        self.git_branch = meta.git_branch or ""
        self.base: Base | None = None
        self._forked_from = meta.forked_from
        self._taken: set[str] = set()
        self._time = meta.timestamp if _iso.match(meta.timestamp) else ""
        if lines is not None:
            self._continue(lines)
        self._space = (uuid.UUID(self.session) if is_uuid(self.session) else uuid.NAMESPACE_OID).bytes

    def _continue(self, lines: IndexedLines) -> None:
        """Go on as the latest lines of the file do."""
        placed = [node for node, id in enumerate(lines.tree.ids) if not is_metadata_id(id)][-_LATEST:]
        latest = list(reversed(lines.fields(placed)))
        self.session = _first(latest, "sessionId") or self.session
        self.cwd = _first(latest, "cwd") or self.cwd
        self.version = _first(latest, "version") or self.version
        self.git_branch = _first(latest, "gitBranch") or find_git_branch(lines) or self.git_branch
        self._forked_from = None
        if placed:
            self.base = find_base(lines)

    # Names and times

    def uuids(self, entry: CanonicalEntry, count: int, *, last: bool = False) -> list[str]:
        """Ids for the lines of an item. Its own id goes to the first of them, or to the last."""
        name = entry.id or ("" if self._lines is not None else f"line {len(self._taken)}")
        is_own = self._is_free(entry.id)
        if count == 1:
            own = entry.id if is_own else self.made(name)
            self._taken.add(own)
            return [own]
        also = list(entry.aliases[: count - 1]) if is_own else []
        if len({entry.id, *also}) != len(also) + 1 or not all(map(self._is_free, also)):
            also = []
        also += [self.made(name and f"{name}#{number}") for number in range(len(also) + 1, count)]
        also.insert(len(also) if last else 0, entry.id if is_own else self.made(name))
        self._taken.update(also)
        return also

    def _is_free(self, id: str) -> bool:
        if len(id) != _UUID or not is_uuid(id):
            return False
        return id not in self._taken and (self._lines is None or id not in self._lines.tree.node_of)

    def made(self, name: str) -> str:
        """An id that follows from a name; for what has no name, a new one."""
        made = made_uuid(self._space, name) if name else str(uuid.uuid4())
        while made in self._taken or (self._lines is not None and made in self._lines.tree.node_of):
            made = made_uuid(self._space, f"{made} {name}")
        return made

    def metadata_id(self, entry: CanonicalEntry) -> str:
        """What an aside is called: as the item is, or by what it says."""
        return entry.id or self.made("" if self._lines is not None else f"{entry.kind} {entry.fields}")

    def time(self, entry: CanonicalEntry) -> str:
        """The item's time in the form the client reads; without one, that of the line before."""
        if _iso.match(entry.timestamp):
            self._time = entry.timestamp
        else:
            ms = milliseconds(entry.timestamp)
            said = object_in(entry.fields, "message").get("timestamp")
            if ms is None and isinstance(said, int | float) and not isinstance(said, bool):
                ms = said  # type: ignore[assignment]
            self._time = _iso_time(ms) or (self._time if self._lines is None else timestamp()) or timestamp()
        return self._time

    # Lines

    def line(self, kind: str, id: str, parent: str | None, time: str, said: Fields, rest: Fields) -> Fields:
        """A line of the chain. `rest` is what rode along of the line that the item was told from."""
        if self.base is None and string_in(rest, "version"):
            self.version = rest["version"]
        line = {
            "parentUuid": parent,
            "isSidechain": False,
            "type": kind,
            **said,
            "uuid": id,
            "timestamp": time,
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.session,
            "version": self.version,
            "gitBranch": self.git_branch,
        }
        if rest:
            line |= {name: value for name, value in rest.items() if name not in _SAID and name not in said}
        if self.base is None:
            self.base = base_of(line)
            if self._forked_from is not None:
                origin = self._forked_from
                line["forkedFrom"] = {"sessionId": origin.session, "messageUuid": origin.entry}
        return line

    def aside(self, entry: Fields, time: str, **more: Any) -> Fields:
        """A line that the client passes over, with an entry in the native shape."""
        return {"type": PASSTHROUGH, "sessionId": self.session, "timestamp": time, "entry": entry, **more}

    def note(self, kind: str, **fields: Any) -> Fields:
        """A line of the client's that tells of the session."""
        return {"type": kind, **fields, "sessionId": self.session}


def boundary_facts(fields: Fields, is_own: bool, kept: Sequence[str], anchor: str) -> Fields:
    """What a boundary says of its compaction: tokens, and the lines it kept behind an anchor."""
    about: Fields = {"trigger": "manual"}
    if is_own:
        about |= object_in(fields, "details")
    for name, key in (("tokensBefore", "preTokens"), ("tokensAfter", "postTokens")):
        tokens = fields.get(name)
        if isinstance(tokens, int | float) and not isinstance(tokens, bool):
            about[key] = tokens
    about.setdefault("preTokens", 0)
    if kept:
        about["preservedSegment"] = {"headUuid": kept[0], "anchorUuid": anchor, "tailUuid": kept[-1]}
        about["preservedMessages"] = {"anchorUuid": anchor, "uuids": list(kept), "allUuids": list(kept)}
    return about


def calls_on(lines: Sequence[Fields], message: Fields, places: Sequence[int]) -> tuple[Call, ...]:
    """The calls of an answer, in their order."""
    blocks = shared_blocks(message.get("content"))
    calls: list[Call] = []
    for line, at in zip(lines, places, strict=False):
        (block,) = line["message"]["content"]
        if block["type"] == "tool_use" and isinstance(blocks[at], dict):
            calls.append(Call(string_in(blocks[at], "id") or "", block["id"], block["name"], line["uuid"]))
    return tuple(calls)


def _first(lines: Sequence[Fields], key: str) -> str:
    return next((found for line in lines if (found := string_in(line, key))), "")


def _iso_time(ms: float | None) -> str:
    if ms is None:
        return ""
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
