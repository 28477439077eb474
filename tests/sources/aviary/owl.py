"""Sessions of a client whose files may continue earlier ones.

{"session": "s2", "cwd": "/work", "start": "2026-01-01T00:00:00.000Z", "continues": "s1", "skip": 69, "bytes": 420}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import msgspec

from parrot import Parrot
from sessiontree.dialects.storage import LINE_FILE, EarlierPart, Joined, Storage


def _find_earlier(path: str, head: bytes) -> EarlierPart | None:
    line, _, _ = head.partition(b"\n")
    header = json.loads(line)
    if "continues" not in header:
        return None
    folder = os.path.dirname(os.path.dirname(path))
    return EarlierPart(folder, f"{header['continues']}.owl", header["bytes"], header["skip"], len(line) + 1)


class Owl(Parrot):
    name = "owl"
    traits = msgspec.structs.replace(Parrot.traits, session_names=(".owl",))

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return (os.path.join(environment.get("AVIARY") or "/nowhere", "owl"),)

    def storage(self, path: str) -> Storage:
        return Joined(_find_earlier) if path.endswith(".owl") else LINE_FILE


OWL = Owl()
