"""Sessions of a client that compresses its files."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from parrot import Parrot
from sessiontree.dialects.storage import LINE_FILE, Compressed, Storage


class Kiwi(Parrot):
    name = "kiwi"
    traits = msgspec.structs.replace(Parrot.traits, session_names=(".kiwi.gz", ".kiwi.zst"))

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return (os.path.join(environment.get("AVIARY") or "/nowhere", "kiwi"),)

    def storage(self, path: str) -> Storage:
        if path.endswith(".kiwi.gz"):
            return Compressed("gzip")
        return Compressed("zstd") if path.endswith(".kiwi.zst") else LINE_FILE


KIWI = Kiwi()
