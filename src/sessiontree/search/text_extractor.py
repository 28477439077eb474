"""Extract the searchable texts from a line of any dialect, including damaged lines and content in blobs.

The rules are those of the dialect (`dialects/texts`). Lines of a dialect without rules are read through their entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from sessiontree.clients import client_of
from sessiontree.core.jsonio import render_strict_json
from sessiontree.dialects.texts import DECODE_ERRORS, NATIVE_TEXTS, Line, TextReader, decode_line, parse_or_none

if TYPE_CHECKING:
    from sessiontree.dialects.contract import Dialect, Format


def read_line(raw: bytes, dialect: Dialect | str, get_blob: Callable[[str], bytes | None] | None = None) -> list[Line]:
    """Extract the texts of each record on a line. Never raises for invalid content."""
    try:
        line = decode_line(raw)
    except DECODE_ERRORS:
        raw = raw if get_blob is None else _with_blobs(raw, get_blob)
        known = _loaded(dialect)
        return [found for record in _salvaged(raw, known) for found in _read_record(record, known)]
    if line.sessiontreeBlobs and get_blob is not None:
        return read_line(_with_blobs(raw, get_blob), dialect)
    reader = _rules_of(dialect) if isinstance(dialect, str) else dialect.client.texts
    found = (None if reader is None else reader.read_other(raw)) or (reader or NATIVE_TEXTS).read(line)
    if not found.texts and reader is None:
        return _from_entry(raw, _loaded(dialect))
    return [found] if found.texts else []


@lru_cache(maxsize=64)  # asked for each line
def _rules_of(name: str) -> TextReader | None:
    return client_of(name).texts


def _loaded(dialect: Dialect | str) -> Dialect:
    from sessiontree.library.roots import dialect_named

    return dialect_named(dialect) if isinstance(dialect, str) else dialect


def _read_record(record: bytes, dialect: Dialect) -> list[Line]:
    try:
        reader = dialect.client.texts or NATIVE_TEXTS
        found = reader.read_other(record) or reader.read(decode_line(record))
    except DECODE_ERRORS:
        return _from_entry(record, dialect)
    return [found] if found.texts else []


def _salvaged(raw: bytes, dialect: Format) -> Iterator[bytes]:
    from sessiontree.core.salvage import salvage

    for piece in salvage(raw, dialect.is_record):
        if piece.kind == "record":
            yield render_strict_json(piece.value)


def _from_entry(raw: bytes, dialect: Format) -> list[Line]:
    """Read a line through its dialect's entry: for other formats, and for fields of unexpected types."""
    entry = dialect.parse(raw)
    fields = msgspec.to_builtins(entry, builtin_types=())
    if not isinstance(fields, dict):
        return []
    try:
        found = NATIVE_TEXTS.read(decode_line(render_strict_json(fields)))
    except DECODE_ERRORS:
        return []
    return [found] if found.texts else []


def _with_blobs(raw: bytes, get_blob: Callable[[str], bytes | None]) -> bytes:
    from sessiontree.session.blob_refs import BLOB_POINTERS, restore

    fields = parse_or_none(raw)
    return (
        render_strict_json(restore(fields, get_blob)) if isinstance(fields, dict) and BLOB_POINTERS in fields else raw
    )
