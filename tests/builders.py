"""Builders shared by the tests: lines, sessions in memory, paths of entries."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings

from sessiontree.core.context import Path
from sessiontree.core.entries import Entry, Problem, type_of
from sessiontree.session.session import Session
from sessiontree.stores.contract import SessionStore
from tests.stores import NOWHERE, new_store, open_stored

__all__ = ["NOWHERE"]

TIME = "2026-02-16T10:00:01.000Z"
HEADER: dict[str, Any] = {
    "type": "session",
    "version": 3,
    "id": "019c0000-0000-7000-8000-00000000000a",
    "timestamp": "2026-02-16T10:00:00.000Z",
    "cwd": "/tmp",
}

THOROUGH = bool(os.environ.get("SESSIONTREE_THOROUGH"))
"""Whether this is `make test-all`: properties try all of their examples, kill loops all of their kills."""


def examples(count: int, *suppressed: HealthCheck) -> settings:
    """Hypothesis settings for `count` examples; `make test` tries a quarter of them, without a deadline per example."""
    tried = count if THOROUGH else max(count // 4, 5)
    return settings(max_examples=tried, deadline=None, suppress_health_check=[HealthCheck.too_slow, *suppressed])


def json_line(fields: Any) -> bytes:
    """A value as a line with its LF, non-ASCII text as it is."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def header(**changes: Any) -> bytes:
    """A header line; a change to None takes the field away."""
    fields = {**HEADER, **changes}
    return json_line({name: value for name, value in fields.items() if value is not None})


def entry(kind: str, id: str, parent: str | None = None, **fields: Any) -> bytes:
    """An entry line of version 2 or 3."""
    return json_line({"type": kind, "id": id, "parentId": parent, "timestamp": TIME, **fields})


def message_line(id: str, parent: str | None = None, text: str = "hello", role: str = "user") -> bytes:
    """A message line."""
    return entry("message", id, parent, message={"role": role, "content": text, "timestamp": 1000})


def chain(count: int, text: str = "hello", first: int = 0) -> list[bytes]:
    """Message lines that follow each other, with ids `m0`, `m1`, and so on."""
    return [message_line(f"m{at}", f"m{at - 1}" if at else None, text) for at in range(first, first + count)]


def opened(data: bytes | SessionStore, dialect: str | None = None) -> Session:
    """The session in some bytes, far from anyone's home folder."""
    return open_stored(new_store(data) if isinstance(data, bytes) else data, dialect)


def grow(store: SessionStore, data: bytes) -> None:
    """Append as another writer does."""
    assert store.append(data, expected_size=store.size()) is not None


def places(problems: Sequence[Problem]) -> list[tuple[int, int, int, str]]:
    """Problems without their wording: line, start, end, kind."""
    return [(problem.line, problem.start, problem.end, problem.kind) for problem in problems]


def path_of(*entries: Entry, loaded: list[int] | None = None) -> Path:
    """A path of entries at hand; the positions that are asked for are noted in `loaded`."""

    def load(positions: Sequence[int]) -> list[Entry]:
        assert list(positions) == sorted(positions)
        if loaded is not None:
            loaded.extend(positions)
        return [entries[position] for position in positions]

    return Path([each.id for each in entries], [type_of(each) for each in entries], load)
