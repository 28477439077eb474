"""A history in canonical form: lines that belong together made one item, and each item made of its lines by `told`.

The shards of a response are one message, and its results follow it; only what the model does not see may stand between
them. A command and its output are one item, and so are a boundary and its summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.claude import decode_lines
from sessiontree.dialects.claude.boundaries import Kept, kept_by, stood_before
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.decode_lines import Base
from sessiontree.dialects.claude.differences import PART, PLAIN
from sessiontree.dialects.claude.history import spoken_history
from sessiontree.dialects.claude.line_summary import LineSummary
from sessiontree.dialects.claude.path import find_trail
from sessiontree.dialects.claude.records import Fields, is_result, object_in, string_in
from sessiontree.dialects.contract import AS_CLIENT, IndexedLines, is_metadata_id
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of

_STEP = 256
_AHEAD = 2
"""The most lines of one item, but for responses: a command and its output, a boundary and its summary."""
_SPEAKING = frozenset({"message", "custom_message", "branch_summary"})
_Line: TypeAlias = tuple[int, Fields]


class _Unit(Struct, frozen=True):
    """An item and the nodes of its lines."""

    item: CanonicalEntry
    nodes: tuple[int, ...]

    @property
    def speaks(self) -> bool:
        return self.item.kind in _SPEAKING

    @property
    def role(self) -> object:
        return object_in(self.item.fields, "message").get("role")


def decode_entries(lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
    """Nodes of a history in canonical form."""
    for unit in _Teller(lines).units(nodes):
        yield unit.item


def find_base(lines: IndexedLines) -> Base:
    """What the first line of the chain says of all of them."""
    first = next((node for node, id in enumerate(lines.tree.ids) if not is_metadata_id(id)), None)
    return Base() if first is None else decode_lines.base_of(lines.fields([first])[0])


def must_decode_together(lines: IndexedLines, node: int, child: int) -> bool:
    """Whether one line that follows another in a history may be part of the same item, or a result of it."""
    if is_metadata_id(lines.tree.ids[child]) or lines.types[child] != "message":
        return True
    noted = _noted_together(lines, node, child)
    if noted is not None:
        return noted
    one, other = lines.fields([node, child])
    if other.get("type") == "assistant":
        if one.get("type") == "assistant":
            return _response(one) == _response(other) != ""
        return not _is_prompt(lines.types[node], one)  # a shard may follow results, and what the model does not see
    if _is_prompt("message", other):
        return lines.types[node] == "compaction" or decode_lines.is_command(one) or PART in passthrough_of(other)
    return True


def _noted_together(lines: IndexedLines, node: int, child: int) -> bool | None:
    """The same by what was noted of the lines at open; None when that does not tell."""
    one, other = lines.notes.get(node), lines.notes.get(child)
    if not isinstance(other, LineSummary) or not isinstance(one, LineSummary) or not one.is_message or other.is_prompt:
        return None
    if not other.is_assistant:
        return True
    return one.response == other.response != "" if one.is_assistant else not one.is_prompt


def _is_prompt(kind: str, line: Fields) -> bool:
    """Whether someone speaks on a line, and not a tool."""
    return kind == "message" and line.get("type") not in ("assistant", PASSTHROUGH) and not _has_results(line)


def _response(line: Fields) -> str:
    return string_in(object_in(line, "message"), "id") or ""


def _has_results(line: Fields) -> bool:
    content = object_in(line, "message").get("content")
    return line.get("type") == "user" and isinstance(content, list) and any(map(is_result, content))


class _Teller:
    """Tells lines one after the other. Holds back a response until it is sure that no shard of it follows."""

    def __init__(self, lines: IndexedLines, *, looks_back: bool = True) -> None:
        self._lines = lines
        self._looks_back = looks_back
        """Whether to say what a compaction kept, which takes a look at what stands before it."""
        self._base = find_base(lines)
        self._names: dict[str, str] = {}
        self._shards: list[_Line] = []
        self._behind: list[_Unit] = []

    def units(self, nodes: Sequence[int]) -> Iterator[_Unit]:
        last: _Unit | None = None
        for found in self._iter_units(nodes):
            if isinstance(found, _Unit):
                if last is not None:
                    yield last
                last = found
            elif last is not None:  # a line that only belongs to the item before it
                entry = replace(last.item, aliases=(*last.item.aliases, self._lines.tree.ids[found]))
                last = _Unit(entry, (*last.nodes, found))
        if last is not None:
            yield last

    def _iter_units(self, nodes: Sequence[int]) -> Iterator[_Unit | int]:
        pending: list[_Line] = []
        for line in self._iter_lines(nodes):
            pending.append(line)
            if len(pending) == _AHEAD:
                yield from self._line(pending)
        while pending:
            yield from self._line(pending)
        yield from self._settle()

    def _iter_lines(self, nodes: Sequence[int]) -> Iterator[_Line]:
        for start in range(0, len(nodes), _STEP):
            step = nodes[start : start + _STEP]
            yield from zip(step, self._lines.resolved_fields(step), strict=True)

    def _line(self, pending: list[_Line]) -> Iterator[_Unit | int]:
        """Tell the first of some lines, and those behind it that belong to it."""
        node, fields = pending.pop(0)
        kind, found = fields.get("type"), passthrough_of(fields)
        if PART in found:
            yield from self._settle()
            yield node
        elif kind == "assistant":
            yield from self._shard(node, fields)
        elif self._lines.types[node] == "compaction" and kind != PASSTHROUGH:
            yield from self._settle()
            yield from self._boundary((node, fields), pending)
        elif (
            pending
            and decode_lines.is_command(fields)
            and PLAIN not in found
            and self._is_output(fields, pending[0][1])
        ):
            yield from self._settle()
            yield self._command((node, fields), pending.pop(0))
        else:
            for entry in self._items(node, fields):
                yield from self._placed(_Unit(entry, (node,)))

    def _shard(self, node: int, fields: Fields) -> Iterator[_Unit]:
        response = _response(fields)
        if not (self._shards and response and _response(self._shards[-1][1]) == response):
            yield from self._settle()
        self._shards.append((node, fields))
        content = object_in(fields, "message").get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use":
                self._names[string_in(block, "id") or ""] = string_in(block, "name") or ""

    def _settle(self) -> Iterator[_Unit]:
        """Tell the response that was held back and all that came behind it."""
        if self._shards:
            entry = decode_lines.told_response([fields for _, fields in self._shards], self._base)
            yield _Unit(entry, tuple(node for node, _ in self._shards))
        yield from self._behind
        self._shards, self._behind = [], []

    def _placed(self, unit: _Unit) -> Iterator[_Unit]:
        """A unit at its place: behind the response that is held back, or right away."""
        if unit.speaks and unit.role != "toolResult":
            yield from self._settle()
        if self._shards:
            self._behind.append(unit)
        else:
            yield unit

    def _items(self, node: int, fields: Fields) -> Sequence[CanonicalEntry]:
        kind, base = fields.get("type"), self._base
        if kind == PASSTHROUGH:
            return [decode_lines.told_aside(fields, self._lines.tree.ids[node])]
        if _has_results(fields):
            return decode_lines.told_results(fields, base, self._names)
        return [decode_lines.told_spoken(fields, base)]

    # Commands

    def _is_output(self, entered: Fields, printed: Fields) -> bool:
        if PART in passthrough_of(printed):
            return True
        return (
            PLAIN not in passthrough_of(printed) and decode_lines.told_command(entered, printed, self._base) is not None
        )

    def _command(self, entered: _Line, printed: _Line) -> _Unit:
        entry = decode_lines.told_command(entered[1], printed[1], self._base)
        if entry is None:  # a part of something else that begins like a command
            return _Unit(decode_lines.told_user(entered[1], self._base), (entered[0], printed[0]))
        return _Unit(entry, (entered[0], printed[0]))

    # Compactions

    def _boundary(self, boundary: _Line, pending: list[_Line]) -> Iterator[_Unit]:
        node, fields = boundary
        summary = pending.pop(0) if pending and pending[0][1].get("isCompactSummary") is True else None
        if summary is None and not pending and not passthrough_of(fields):
            # Nothing came after it, so nothing was compacted.
            yield _Unit(decode_lines.told_silent(fields, self._base), (node,))
            return
        nodes = (node,) if summary is None else (node, summary[0])
        said = summary[1] if summary else None
        if not self._looks_back or passthrough_of(fields):  # passthrough data says what was kept
            yield _Unit(decode_lines.told_compaction(fields, said, self._base), nodes)
            return
        chain = Chain(self._lines)
        kept = kept_by(chain, node)
        if self._keeps_all(chain, node, fields, kept):
            left_at = next(islice(chain.iter_links_before(node), 1), None)
            left_id = None if left_at is None else self._lines.tree.ids[left_at]
            yield _Unit(decode_lines.told_left_branch(fields, said, self._base, left_id), nodes)
            return
        behind = self._from_first_kept(chain, node, kept)
        is_tail = all(unit_kept for unit, unit_kept in behind if unit.speaks)
        first = next((unit.item.id for unit, _ in behind), None) if is_tail else None
        yield _Unit(decode_lines.told_compaction(fields, said, self._base, first), nodes)
        if not is_tail:
            # A compaction in canonical form keeps all that follows a certain entry. Here some of it was not kept, so
            # what was is said once more behind the summary. The client may have sent it before the summary.
            again = [unit for unit, unit_kept in behind if unit_kept and unit.speaks]
            for number, unit in enumerate(again, 1):
                # What follows the summary follows the last of them.
                also = (string_in(said or {}, "uuid") or "",) if number == len(again) else ()
                entry = replace(unit.item, id=f"{unit.item.id}+{string_in(fields, 'uuid')}", aliases=also)
                yield _Unit(entry, unit.nodes)

    def _keeps_all(self, chain: Chain, node: int, fields: Fields, kept: Kept) -> bool:
        """Whether a path goes on after a boundary with all it had, and only then comes the summary.

        So it is when the user summarises from a message on: the path is that of the message before, and what was
        summarised has become a branch that was left.
        """
        about = object_in(fields, "compactMetadata")
        anchored = object_in(about, "preservedMessages") or object_in(about, "preservedSegment")
        if not kept.nodes or anchored.get("anchorUuid") != fields.get("uuid"):
            return False
        trail = find_trail(chain, stood_before(chain, node), AS_CLIENT).nodes
        return all(unit_kept for unit, unit_kept in self._kept_units(trail, kept) if unit.speaks)

    def _from_first_kept(self, chain: Chain, node: int, kept: Kept) -> list[tuple[_Unit, bool]]:
        """What stands before a boundary from the first line on that it kept, and whether each was kept."""
        if not kept.nodes:
            return []
        before = spoken_history(chain, stood_before(chain, node), AS_CLIENT)
        first = next((at for at, other in enumerate(before) if other in kept.nodes), len(before))
        return self._kept_units(before[first:], kept)

    def _kept_units(self, nodes: Sequence[int], kept: Kept) -> list[tuple[_Unit, bool]]:
        members = kept.nodes | (kept.listed or frozenset())
        found: list[tuple[_Unit, bool]] = []
        with_results = False
        for unit in _Teller(self._lines, looks_back=False).units(nodes):
            is_kept = not members.isdisjoint(unit.nodes)
            if unit.role == "assistant":
                with_results = is_kept and kept.listed is None  # without a list, results come along with their response
            elif unit.role == "toolResult":
                is_kept = is_kept or with_results
            found.append((unit, is_kept))
        return found
