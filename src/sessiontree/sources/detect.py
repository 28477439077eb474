"""Find the dialect of a session by its first lines."""

from __future__ import annotations

from collections.abc import Callable

from sessiontree import plugins
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.dialects.contract import CERTAIN, Dialect
from sessiontree.dialects.storage import Joined, LineFile, Rows
from sessiontree.errors import NotASessionError, SessionTreeError
from sessiontree.sources.lines_store import damage_of
from sessiontree.sources.open import open_source
from sessiontree.stores.contract import SessionRef, read_bytes
from sessiontree.stores.file import FileStore
from sessiontree.stores.repositories import open_repository

_HEAD_BYTES = 64 * 1024
_CONFIDENT = 20
_NATIVE_MARK = b"sessiontree"


def detect(head: bytes, location: str) -> Dialect:
    """Find the dialect with the highest score for the first lines; if all scores are low, the path decides."""
    return _detect(head, location, lambda dialect: dialect.recognize(head))


def detect_source(ref: SessionRef) -> Dialect:
    """Find the dialect of a session in a file, whether it stores lines or not."""
    head = read_bytes(FileStore(ref.name), 0, _HEAD_BYTES)
    return _detect(
        head, ref.name, lambda dialect: _score(dialect, head, ref), lambda dialect: not _has_lines(dialect, ref)
    )


def detect_stored(ref: SessionRef) -> Dialect:
    """Find the dialect of a session in a repository."""
    return detect(read_bytes(open_repository(ref.home).open(ref), 0, _HEAD_BYTES), str(ref))


def _detect(
    head: bytes,
    location: str,
    score_of: Callable[[Dialect], int],
    is_costly: Callable[[Dialect], bool] = lambda _: False,
) -> Dialect:
    """Ask each dialect for its score; those that have to read the whole file only if no other is confident."""
    # Dialects of other packages come first, so that they can claim a file; of ours, the native one.
    ranked = sorted(
        plugins.names("dialects"), key=lambda name: (plugins.is_ours("dialects", name), name != DEFAULT_DIALECT)
    )
    # Only the marker in its header makes the native dialect certain. So it is asked either first or last, and loaded
    # only for files with the marker or files that no other dialect is certain of.
    asked = ranked if _NATIVE_MARK in head else sorted(ranked, key=lambda name: name == DEFAULT_DIALECT)
    dialects: dict[str, Dialect] = {}
    scores: dict[str, int] = {}
    costly: list[str] = []
    for name in asked:
        dialect: Dialect = plugins.load("dialects", name)
        dialects[name] = dialect
        if is_costly(dialect):
            costly.append(name)
            continue
        scores[name] = score_of(dialect)
        if scores[name] >= CERTAIN:
            return dialect
    candidates = [name for name in ranked if name in scores]
    if max(scores.values(), default=0) < _CONFIDENT:
        candidates += costly
        scores |= {name: score_of(dialects[name]) for name in costly}
    best = max(candidates, key=scores.__getitem__)
    if scores[best] == 0:
        raise NotASessionError(not_a_session(location))
    if scores[best] < _CONFIDENT:
        by_folder = (
            name for name in candidates if any(folder in location for folder in dialects[name].traits.path_markers)
        )
        best = next(by_folder, best)
    return dialects[best]


def not_a_session(location: str, head: bytes = b"") -> str:
    """The message for a file without a session; it names the damage if the first line reports one."""
    reason = damage_of(head)
    if reason:
        return f"{location}: {reason}; the file was not touched"
    return f"{location} line 1 byte 0: not a session in a known format; the file was not touched"


def _has_lines(dialect: Dialect, ref: SessionRef) -> bool:
    """Whether the first bytes of the file are the first lines of the session."""
    return isinstance(dialect.storage(ref.name), LineFile | Joined)


def _score(dialect: Dialect, head: bytes, ref: SessionRef) -> int:
    """The score of a dialect: of the file's first bytes or, if it does not store lines, of the first lines in it."""
    storage = dialect.storage(ref.name)
    if isinstance(storage, LineFile) or (isinstance(storage, Joined) and storage.codec is None):
        return 0 if ref.item else dialect.recognize(head)
    if isinstance(storage, Rows) != bool(ref.item):
        return 0
    try:
        return dialect.recognize(read_bytes(open_source(ref, dialect), 0, _HEAD_BYTES))
    except SessionTreeError:
        return 0
