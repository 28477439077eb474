"""Which bytes of a large transcript tell where it stands, when nothing else of it is wanted.

Behind the last compaction boundary a context needs little of what stands before it: the messages the boundary keeps,
which it names, the last pin and the last mode. Those are searched for as bytes, from the end of the file; nothing else
is decoded. Whenever something is not as simple as that, the answer is None, and the file is read whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sessiontree.core.jsonio import parse_json
from sessiontree.dialects.claude.records import Fields, object_in
from sessiontree.dialects.claude.reparent import NIL
from sessiontree.dialects.contract import IndexedLines

Read = Callable[[int, int], bytes]
"""(offset, size) -> those bytes, fewer at the end of the file."""

Part = tuple[int, int]
"""Where some whole lines begin and end."""

_CHUNK = 1 << 20
_BOUNDARY = re.compile(re.escape(_MARK := b'"compact_boundary"'))
_POINTERS = re.compile(rb'"(?:last-prompt|permission-mode|mode)"')
_MODES = ("mode", "permission-mode")
_FARTHEST = 4
"""A boundary that stands in the first three quarters of a file spares too little."""


def find_context_ranges(size: int, read: Read) -> list[Part] | None:
    """The parts of a transcript that its context is made of, in file order; None when it has to be read whole."""
    boundary = next(_iter_back(read, size, size - size // _FARTHEST, _BOUNDARY, _is_boundary), None)
    if boundary is None:
        return None
    start, fields = boundary
    kept = _kept(fields)
    if kept is None:
        return None
    parts = _places(read, start, kept)
    if parts is None:
        return None
    return None if (pointers := _pointers(read, start, size)) is None else sorted({*parts, *pointers, (start, size)})


def is_partial_context_exact(lines: IndexedLines, path: Sequence[str]) -> bool:
    """Whether a path made of such parts is surely that of the whole file: nothing on it leads to what is not there."""
    nodes = [lines.tree.node_of[id] for id in path]
    if not nodes or lines.types[nodes[0]] != "compaction":
        return False
    if any(node > nodes[0] and lines.tree.is_orphan(node) for node in nodes):
        return False
    pins = [node for node, kind in enumerate(lines.types) if kind == "last-prompt"]
    pinned = lines.fields(pins[-1:])[0].get("leafUuid") if pins else None
    return not isinstance(pinned, str) or pinned == NIL or pinned in lines.tree.node_of


def _is_boundary(fields: Fields) -> bool:
    return fields.get("type") == "system" and fields.get("subtype") == "compact_boundary"


def _kept(boundary: Fields) -> set[str] | None:
    """The ids of the lines a boundary keeps; None when it does not name each of them."""
    about = object_in(boundary, "compactMetadata")
    by_list = object_in(about, "preservedMessages")
    uuids, every = by_list.get("uuids"), by_list.get("allUuids")
    if not isinstance(uuids, list):
        return None if object_in(about, "preservedSegment") else set()
    return {id for id in [*uuids, *(every if isinstance(every, list) else [])] if isinstance(id, str)}


def _places(read: Read, start: int, ids: set[str]) -> list[Part] | None:
    """Where the lines with some ids stand before an offset; None when one of them is not there."""
    if not ids:
        return []
    wanted = set(ids)
    try:
        pattern = re.compile(b"|".join(re.escape(f'"{id}"'.encode()) for id in sorted(ids)))
    except UnicodeEncodeError:  # an id that no line can be searched for
        return None
    found: list[Part] = []
    for at, fields in _iter_back(read, start, 0, pattern, lambda line: line.get("uuid") in wanted):
        wanted.discard(str(fields["uuid"]))
        found.append((at, _end_of_line(read, at, start)))
        if not wanted:
            return found
    return None


def _pointers(read: Read, start: int, size: int) -> list[Part] | None:
    """The last mode before an offset, if none stands behind it; None when the last pin stands before it, too."""
    seen = [str(fields["type"]) for _, fields in _iter_back(read, size, start, _POINTERS, _is_pointer)]
    has_pin, has_mode = "last-prompt" in seen, any(kind in seen for kind in _MODES)
    found: list[Part] = []
    for at, fields in _iter_back(read, start, 0, _POINTERS, _is_pointer):
        if has_pin and has_mode:
            break
        if fields["type"] == "last-prompt":
            if not has_pin:
                return None
        elif not has_mode:
            has_mode = True
            found.append((at, _end_of_line(read, at, start)))
    return found


def _is_pointer(fields: Fields) -> bool:
    return fields.get("type") in ("last-prompt", *_MODES)


def _iter_back(
    read: Read, end: int, first: int, pattern: re.Pattern[bytes], is_meant: Callable[[Fields], bool]
) -> Iterator[tuple[int, Fields]]:
    """Lines that begin in a range of the file, match a pattern and mean what is looked for, the last one first."""
    rest = b""
    while end > first:
        start = max(first, end - max(_CHUNK, len(rest)))  # a line longer than that is read in ever larger steps
        chunk = read(start, end - start) + rest
        whole = 0 if start == 0 else chunk.find(b"\n") + 1
        if whole == 0 and start > first:  # one line reaches beyond the chunk
            rest, end = chunk, start
            continue
        begun = len(chunk)
        # Looking for plain bytes is several times faster than looking for a pattern, and mostly there is nothing.
        matches = [] if pattern is _BOUNDARY and _MARK not in chunk else list(pattern.finditer(chunk, whole))
        for found in reversed(matches):
            if found.start() >= begun:
                continue  # the same line again
            begun = chunk.rfind(b"\n", 0, found.start()) + 1
            stop = chunk.find(b"\n", found.end())
            fields = _decoded(chunk[begun : stop if stop >= 0 else len(chunk)])
            if fields is not None and is_meant(fields):
                yield start + begun, fields
        rest, end = chunk[:whole], start


def _end_of_line(read: Read, at: int, limit: int) -> int:
    while at < limit:
        chunk = read(at, min(_CHUNK, limit - at))
        found = chunk.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(chunk)
    return limit


def _decoded(line: bytes) -> Fields | None:
    try:
        fields: Any = parse_json(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None
