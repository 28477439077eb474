"""Find the byte ranges of a large transcript that its current context is built from, without reading the rest.

A context after a compaction boundary needs little of what precedes the boundary: the preserved messages, which it
names, and the last mode. A byte search from the end of the file finds them. In any more complicated case
the result is None, and the complete file is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from sessiontree.core.context import Context
from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.claude.records import NIL_UUID, Fields, object_in
from sessiontree.dialects.contract import IndexedLines

Read: TypeAlias = Callable[[int, int], bytes]
"""(offset, size) -> those bytes, fewer at the end of the file."""

Range: TypeAlias = tuple[int, int]
"""The start and end of some complete lines."""

_CHUNK = 1 << 20
_BOUNDARY = re.compile(re.escape(_BOUNDARY_BYTES := b'"compact_boundary"'))
_MODE = re.compile(rb'"(?:permission-mode|mode)"')
_MODES = ("mode", "permission-mode")
_TAIL_FRACTION = 4
"""Only the last quarter of a file is searched for a boundary: an earlier one would save too little."""


def find_context_ranges(size: int, read: Read) -> list[Range] | None:
    """Return the ranges that the context is built from, in file order; None if the complete file has to be read."""
    boundary = next(_iter_backwards(read, size, size - size // _TAIL_FRACTION, _BOUNDARY, _is_boundary), None)
    if boundary is None:
        return None
    start, line = boundary
    preserved = _preserved_ids(line)
    if preserved is None:
        return None
    ranges = _find_lines(read, start, preserved)
    if ranges is None:
        return None
    return sorted({*ranges, *_find_mode(read, start, size), (start, size)})


def is_context_exact(lines: IndexedLines, context: Context) -> bool:
    """Whether a context built from such ranges is certainly that of the complete file: it refers to nothing outside."""
    # Without a model after the boundary, the one before it would be needed, which the ranges do not include.
    return context.state.model is not None and _is_path_exact(lines, context.path)


def _is_path_exact(lines: IndexedLines, path: Sequence[str]) -> bool:
    nodes = [lines.tree.node_of[id] for id in path]
    if not nodes or lines.types[nodes[0]] != "compaction":
        return False
    if any(node > nodes[0] and lines.tree.is_orphan(node) for node in nodes):
        return False
    pins = [node for node, kind in enumerate(lines.types) if kind == "last-prompt"]
    pinned = lines.fields(pins[-1:])[0].get("leafUuid") if pins else None
    return not isinstance(pinned, str) or pinned == NIL_UUID or pinned in lines.tree.node_of


def _is_boundary(line: Fields) -> bool:
    return line.get("type") == "system" and line.get("subtype") == "compact_boundary"


def _preserved_ids(boundary: Fields) -> set[str] | None:
    """Return the uuids of the lines that a boundary preserves; None when it does not name each of them."""
    metadata = object_in(boundary, "compactMetadata")
    by_list = object_in(metadata, "preservedMessages")
    uuids, all_uuids = by_list.get("uuids"), by_list.get("allUuids")
    if not isinstance(uuids, list):
        return None if object_in(metadata, "preservedSegment") else set()
    return {id for id in [*uuids, *(all_uuids if isinstance(all_uuids, list) else [])] if isinstance(id, str)}


def _find_lines(read: Read, end: int, ids: set[str]) -> list[Range] | None:
    """Return the ranges of the lines with some uuids before an offset; None when one is missing."""
    if not ids:
        return []
    wanted = set(ids)
    try:
        pattern = re.compile(b"|".join(re.escape(f'"{id}"'.encode()) for id in sorted(ids)))
    except UnicodeEncodeError:  # a lone surrogate, which cannot be searched for as bytes
        return None
    found: list[Range] = []
    for at, line in _iter_backwards(read, end, 0, pattern, lambda line: line.get("uuid") in wanted):
        wanted.discard(str(line["uuid"]))
        found.append((at, _end_of_line(read, at, end)))
        if not wanted:
            return found
    return None


def _find_mode(read: Read, start: int, size: int) -> list[Range]:
    """Return the last mode before an offset, unless another follows it."""
    if next(_iter_backwards(read, size, start, _MODE, _is_mode), None) is not None:
        return []
    found = next(_iter_backwards(read, start, 0, _MODE, _is_mode), None)
    return [] if found is None else [(found[0], _end_of_line(read, found[0], start))]


def _is_mode(line: Fields) -> bool:
    return line.get("type") in _MODES


def _iter_backwards(
    read: Read, end: int, first: int, pattern: re.Pattern[bytes], is_wanted: Callable[[Fields], bool]
) -> Iterator[tuple[int, Fields]]:
    """Iterate over wanted lines that match a pattern and start in a range of the file, the last one first."""
    rest = b""
    while end > first:
        start = max(first, end - max(_CHUNK, len(rest)))  # a longer line is read in ever larger steps
        chunk = read(start, end - start) + rest
        first_line = 0 if start == 0 else chunk.find(b"\n") + 1
        if first_line == 0 and start > first:  # one line reaches beyond the chunk
            rest, end = chunk, start
            continue
        line_start = len(chunk)
        # Searching for plain bytes is several times faster than for a pattern, and usually finds nothing.
        is_absent = pattern is _BOUNDARY and _BOUNDARY_BYTES not in chunk
        matches = [] if is_absent else list(pattern.finditer(chunk, first_line))
        for found in reversed(matches):
            if found.start() >= line_start:
                continue  # the same line again
            line_start = chunk.rfind(b"\n", 0, found.start()) + 1
            line_end = chunk.find(b"\n", found.end())
            line = parse_object(chunk[line_start : line_end if line_end >= 0 else len(chunk)])
            if is_wanted(line):
                yield start + line_start, line
        rest, end = chunk[:first_line], start


def _end_of_line(read: Read, at: int, limit: int) -> int:
    while at < limit:
        chunk = read(at, min(_CHUNK, limit - at))
        found = chunk.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(chunk)
    return limit
