"""Sessions of a client that keeps all of them in one SQLite database."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from parrot import Parrot
from sessiontree.dialects.storage import LINE_FILE, Rows, Storage


def _line(row: tuple[Any, ...]) -> bytes:
    return json.dumps(json.loads(row[0])).encode()


_ROWS = Rows(
    sessions="""
        SELECT id AS item, updated AS modified, parent, iif(parent IS NULL, 'session', 'subagent') AS kind FROM chat
    """,
    lines="""
        SELECT header, -1 AS number FROM chat WHERE id = :item
        UNION ALL SELECT body, number FROM message WHERE chat = :item ORDER BY number
    """,
    line=_line,
)


class Heron(Parrot):
    name = "heron"
    traits = msgspec.structs.replace(Parrot.traits, session_names=("heron.db",))

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return (os.path.join(environment.get("AVIARY") or "/nowhere", "heron"),)

    def storage(self, path: str) -> Storage:
        return _ROWS if path.endswith("heron.db") else LINE_FILE


HERON = Heron()
