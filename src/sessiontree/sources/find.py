"""Find the sessions in files that no library lists."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from sessiontree import plugins
from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.contract import Locations
from sessiontree.dialects.storage import Rows
from sessiontree.errors import SessionTreeError
from sessiontree.sources.items import iter_items
from sessiontree.stores.contract import SessionRef
from sessiontree.stores.safe_files import read_small

_LINES = ".jsonl"


def iter_sessions(path: str, on_error: Callable[[OSError], None] | None = None) -> Iterator[SessionRef]:
    """The sessions in a file or, sorted by name, in a folder and all folders below it.

    In folders, files with JSON of other kinds are left out, but not those that are damaged from their beginning.
    `on_error` is called for each folder that cannot be read.
    """
    dialects: list[Locations] = [plugins.load("dialects", name) for name in plugins.names("dialects")]
    if not os.path.isdir(path):
        yield from _iter_file(os.path.abspath(path), dialects)
        return
    endings = tuple({ending for dialect in dialects for ending in dialect.traits.session_names})
    for folder, folders, names in os.walk(path, onerror=on_error):
        folders.sort()
        for name in sorted(names):
            if name.endswith(endings):
                path = os.path.join(folder, name)
                if (name.endswith(_LINES) and not _has_json_objects(path)) or _is_session(path, dialects):
                    yield from _iter_file(path, dialects)


def _has_json_objects(path: str) -> bool:
    """Whether the first line of a file is a JSON object. Prompt histories, logs and records have such lines, too."""
    return bool(parse_object((read_small(path) or b"").partition(b"\n")[0]))


def _is_session(path: str, dialects: list[Locations]) -> bool:
    """Whether a file with an ambiguous name, such as one that ends with `.json`, contains sessions."""
    from sessiontree.sources.detect import detect_source

    try:
        if any(True for ref in _iter_file(path, dialects) if ref.item):
            return True
        detect_source(SessionRef(path))
    except SessionTreeError:
        return False
    return True


def _iter_file(path: str, dialects: list[Locations]) -> Iterator[SessionRef]:
    """The file itself, or each session in it if a dialect knows it as one that contains several."""
    for dialect in dialects:
        storage = dialect.storage(path) if path.endswith(dialect.traits.session_names) else None
        if isinstance(storage, Rows):
            yield from (stat.ref for stat in iter_items(path, storage, 0, dialect.name))
            return
    yield SessionRef(path)
