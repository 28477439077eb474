"""A transcript that is being written: its sheet, what stands where, what is held back, and what all entries need.

The results of one response are held back until all are there or something else comes: where some are missing, they
hang on the last line of the response and not each on its own, since the client forgets calls beside the path that
have no result. In a file that is continued nothing can be held back, so there a result hangs on its own call only if
no call behind that one is still open.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.claude.decode_lines import Base
from sessiontree.dialects.claude.differences import AFTER, PART, build_passthrough
from sessiontree.dialects.claude.line_builder import Call, LineBuilder, Placed, boundary_facts
from sessiontree.dialects.claude.records import Fields
from sessiontree.dialects.claude.reparent import NIL
from sessiontree.dialects.claude.restoring import but
from sessiontree.dialects.claude.write_state import Behind, WriteState
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.passthrough import PASSTHROUGH

LONGEST_PROMPT = 200


class Held(Struct):
    """The response whose results may still come, and the lines that wait for them."""

    response: str
    open: set[str]
    """The lines of the calls that have no result yet."""
    lines: list[Fields]


class Transcript:
    """One transcript under way."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None) -> None:
        self.is_new = lines is None
        self.sheet = LineBuilder(meta, lines)
        self.standing = WriteState(lines)
        self.held: Held | None = None
        self.last: str | None = None
        """The line of the chain written last."""
        self.after: str | None = None
        """The aside before what is being written, see `Standing.aside_before`."""

    @property
    def base(self) -> Base:
        return self.sheet.base or Base()

    # Lines of the chain

    def ride(self, entry: CanonicalEntry, line: Fields, said: CanonicalEntry, left_out: Sequence[int] = ()) -> None:
        """Put what the lines of an item do not say of it on one of them."""
        if not entry.id:  # it has never been elsewhere: what its lines say of the client is right
            said = replace(said, fields=but(said.fields, PASSTHROUGH), id="")
        found = {**line.get(PASSTHROUGH, {}), **build_passthrough(entry, said, left_out)}
        if found:
            line[PASSTHROUGH] = found

    def say_after(self, line: Fields) -> None:
        if self.after is not None:
            line[PASSTHROUGH] = {**line.get(PASSTHROUGH, {}), AFTER: self.after}

    def placed(
        self,
        entry: CanonicalEntry,
        parent: str | None,
        lines: Sequence[Fields],
        notes: Sequence[LossNote] = (),
        *,
        calls: tuple[Call, ...] | None = None,
        prompt: str = "",
        kept: tuple[str, ...] | None = None,
    ) -> Encoded:
        """The lines of an item at their place in the tree, behind those that were held back."""
        uuids = tuple([line["uuid"] for line in lines])
        last = uuids[-1]
        main = last if calls is not None else uuids[0]
        before = self.released()
        if parent is None and kept is None and self._has_chain():
            # So says the client that the user went back to before the first prompt. Otherwise it is a torn history.
            before.append(self.sheet.note("last-prompt", leafUuid=NIL, explicit=True))
        is_apart = self.standing.needs_boundary(parent, is_result=False) and kept is None
        if is_apart and parent is not None:
            before.append(self.own_boundary(entry, parent))
            lines[0]["parentUuid"] = before[-1]["uuid"]
        self.say_after(lines[0])
        self.last = last
        prompt = prompt[:LONGEST_PROMPT]
        self.standing.add(entry, last, Placed(parent, uuids, main, calls or (), None, "", is_apart, prompt, kept))
        return Encoded(last, [render_json(line) for line in (*before, *lines)], notes)

    def placed_result(self, entry: CanonicalEntry, line: Fields, placed: Placed) -> None:
        """A result at its place; when its line comes is for the caller to know."""
        self.say_after(line)
        self.last = placed.main
        self.standing.add(entry, placed.main, placed)

    def released(self) -> list[Fields]:
        """The results that were held back. If some are still missing, all hang on the last line of the response."""
        held, self.held = self.held, None
        if held is None:
            return []
        for line in held.lines if held.open else ():
            if line["type"] != PASSTHROUGH:
                line["parentUuid"] = held.response
        return held.lines

    def _has_chain(self) -> bool:
        return self.last is not None or self.standing.has_chain

    # Boundaries

    def boundary_line(self, id: str, before: str | None, time: str, about: Fields, rest: Fields) -> Fields:
        said = {
            "logicalParentUuid": before,
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "isMeta": False,
            "level": "info",
            "compactMetadata": about,
        }
        return self.sheet.line("system", id, None, time, said, rest)

    def silent_line(self, id: str, parent: str, time: str) -> Fields:
        """A line of the chain that is not sent, for others to hang on."""
        said = {"subtype": "informational", "content": "Conversation compacted", "isMeta": False, "level": "info"}
        return {**self.sheet.line("system", id, parent, time, said, {}), PASSTHROUGH: {PART: True}}

    def parted(self, entry: CanonicalEntry, parent: str) -> list[Fields]:
        """A boundary for what follows a line that others follow too, and a line to hang on."""
        boundary = self.own_boundary(entry, parent)
        (end,) = self.sheet.uuids(CanonicalEntry("", {}, f"behind {boundary['uuid']}"), 1)
        return [boundary, self.silent_line(end, boundary["uuid"], boundary["timestamp"])]

    def freed(self, entry: CanonicalEntry, leaf: str) -> list[Fields]:
        """A boundary for a line of the file that a later compaction keeps, so that it stands without that one again."""
        kept = self.standing.lines_without_later_boundary(leaf)
        if not kept:
            return []
        id, end = self.sheet.uuids(entry, 2)
        time = self.sheet.time(entry)
        about = boundary_facts({}, False, kept, id)
        boundary = {**self.boundary_line(id, leaf, time, about, {}), PASSTHROUGH: {PART: True}}
        return [boundary, self.silent_line(end, id, time)]

    def own_boundary(self, entry: CanonicalEntry, parent: str) -> Fields:
        """A boundary that keeps exactly what leads to an item, for one that would be read with lines of others.

        What a compaction on another branch kept follows its summary, also for those who come to it from elsewhere; and
        all results of a response belong to each way on from it. A later boundary that lists its lines undoes both.
        """
        kept = self.standing.context_lines(parent)
        self.standing.capture(kept)
        (id,) = self.sheet.uuids(CanonicalEntry("", {}, f"before {entry.id}" if entry.id else ""), 1)
        about = boundary_facts({}, False, kept, id)
        return {**self.boundary_line(id, parent, self.sheet.time(entry), about, {}), PASSTHROUGH: {PART: True}}

    # Beside the chain

    def aside_line(self, item: CanonicalEntry, parent: str | None, entry: Fields) -> Fields:
        line = self.sheet.aside(entry, self.sheet.time(item), id=self.sheet.metadata_id(item), parent=parent)
        if self.after:
            line[AFTER] = self.after
        self.standing.add_aside(item, line["id"], parent)
        return line

    def written_aside(self, line: Fields, parent: str | None, notes: Sequence[LossNote]) -> Encoded:
        id = None if parent is None else Behind(parent, line["id"])
        if self.held is not None and self.held.lines:
            self.held.lines.append(line)
            return Encoded(id, (), notes)
        return Encoded(id, [render_json(line)], notes)
