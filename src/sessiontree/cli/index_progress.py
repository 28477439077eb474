"""Update the search index for a command, with a progress bar on a terminal."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from typing import TYPE_CHECKING

from sessiontree.cli import stderr
from sessiontree.errors import StoreError
from sessiontree.search.indexer import open_indexes
from sessiontree.views.text import cut, one_line

if TYPE_CHECKING:
    from sessiontree.library.library import Library
    from sessiontree.search.indexer import Progress

_AFTER, _EVERY = 0.3, 0.1
_SECONDS_UNSEEN = 3.0
"""How long a command without a terminal indexes after its output. What was indexed by then is kept."""
_BAR, _NAME = 20, 18
_shown: set[str] = set()
"""Titles of the progress bars on the terminal."""


def progress_bar(title: str) -> Progress | None:
    """A one-line progress bar on stderr for slow updates; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        return None
    from shutil import get_terminal_size

    start = last = time.perf_counter()
    megabyte = 1 << 20

    def show(done: int, of: int, path: str) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - start < _AFTER or now - last < _EVERY:
            return
        last = now
        _shown.add(title)
        filled = min(_BAR * done // max(of, 1), _BAR)
        bar = "█" * filled + "░" * (_BAR - filled)
        counted = f"{done // megabyte} of {of // megabyte} MB"
        name = one_line(os.path.basename(path))
        name = name if len(name) <= _NAME else f"…{name[-_NAME:]}"  # file names differ at their end
        text = cut(f"{title} {bar} {counted}  {name}", get_terminal_size().columns - 1)
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()

    return show


def update_index(library: Library, seconds: float = _SECONDS_UNSEEN) -> None:
    """Update the index after the output: completely on a terminal, else for a few seconds."""
    show = progress_bar("indexing (Ctrl-C stops)")
    until = time.perf_counter() + seconds
    try:
        with open_indexes(library) as parts:
            for part in parts:
                part.update(progress=show or _stop_at(until), timeout=0.0)
        _clear()
    except (_TimeUpError, sqlite3.Error, OSError):
        return  # the results were printed; the next search continues indexing
    except KeyboardInterrupt:
        _clear()
        stderr.print_line("Indexing stopped. The next search continues it.")


def rebuild_index(library: Library) -> None:
    """Delete the index and build it again."""
    with open_indexes(library) as parts:
        for part in parts:
            store = part.index.store
            try:
                with store.writer_lock():
                    store.clear()
                part.update(progress=progress_bar("indexing"))
            except (sqlite3.Error, OSError) as error:
                raise StoreError(f"{store.path}: cannot build the index: {error}") from None
    _clear()


def clear_progress() -> None:
    """Remove the progress bar, if there is one."""
    if _shown:
        _clear()


def _clear() -> None:
    _shown.clear()
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


class _TimeUpError(Exception):
    """Stops indexing at the deadline."""


def _stop_at(until: float) -> Progress:
    def check(_done: int, _of: int, _path: str) -> None:
        if time.perf_counter() > until:
            raise _TimeUpError

    return check
