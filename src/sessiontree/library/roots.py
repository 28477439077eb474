"""The folders where each agent keeps its sessions, from the dialects or as configured.

Asking the dialects means importing all of them, which takes longer than a listing in which nothing changed. So the
result is cached together with the environment variables it depends on, and valid while those have the same values.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from sessiontree import plugins
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from sessiontree.dialects.contract import Dialect
    from sessiontree.library.cache import Cache


class Root(Struct, frozen=True):
    """A folder of sessions (real path), or the address of a repository, and the agents that may have written there."""

    folder: str
    agents: tuple[str, ...]
    barren: frozenset[str] = frozenset()
    """Names of subfolders that never contain a session."""
    names: tuple[str, ...] = (".jsonl",)
    """Ends of the names of files that may contain sessions."""
    is_repository: bool = False
    indexed_agents: tuple[str, ...] = ()
    """Agents that keep facts about sessions, such as titles, outside of their files."""


class _DialectRoots(Struct, frozen=True):
    """Roots of all dialects, and the values of the variables they depend on."""

    variables: dict[str, str | None]
    folders: dict[str, tuple[str, ...]]
    barren: dict[str, frozenset[str]]
    names: dict[str, tuple[str, ...]]
    indexed: frozenset[str]


def dialect_named(name: str) -> Dialect:
    found: Dialect = plugins.load("dialects", name)
    return found


def parse_roots(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Parse `DIALECT=DIR` options into the folders configured for each dialect."""
    chosen: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, folder = text.partition("=")
        if not equals or not folder or name not in plugins.names("dialects"):
            known = ", ".join(plugins.names("dialects"))
            raise UsageError(f"{text!r}: expected DIALECT=DIR with one of {known}")
        if not is_repository(folder) and not os.path.isdir(os.path.expanduser(folder)):
            exists = os.path.lexists(os.path.expanduser(folder))
            raise UsageError(f"--root {text}: {'not a folder' if exists else 'no such folder'}")
        chosen[name] = (*chosen.get(name, ()), folder)
    return chosen


def find_roots(
    environment: Mapping[str, str],
    chosen: Mapping[str, Sequence[str]] | None = None,
    home: str | None = None,
    cache: Cache | None = None,
) -> list[Root]:
    """The existing roots of all dialects; folders configured for a dialect replace its own.

    Two dialects may use the same folder (Pi and oh-my-pi share a variable): then it is one root.
    """
    if home is not None and is_repository(home):
        chosen = {DEFAULT_DIALECT: (home,), **(chosen or {})}
    elif home is not None:
        environment = {**environment, "SESSIONTREE_HOME": home}
    answers = _load_cached(environment, cache) or _ask_dialects(environment, cache)
    agents: dict[str, list[str]] = {}
    for name, own in answers.folders.items():
        for folder in (chosen or {}).get(name) or own:
            real = folder if is_repository(folder) else os.path.realpath(os.path.expanduser(folder))
            if name not in agents.setdefault(real, []):
                agents[real].append(name)
    return [
        Root(
            folder,
            tuple(owners),
            answers.barren[owners[0]],
            tuple(dict.fromkeys(name for owner in owners for name in answers.names[owner])),
            is_repository(folder),
            tuple(owner for owner in owners if owner in answers.indexed),
        )
        for folder, owners in agents.items()
        if is_repository(folder) or os.path.isdir(folder)
    ]


def is_repository(folder: str) -> bool:
    """Whether a root is the address of a repository, such as `memory:team`, rather than a folder."""
    if ":" not in folder:
        return False
    from sessiontree.stores.repositories import is_address  # only an address needs its scheme looked up

    return is_address(folder)


def _load_cached(environment: Mapping[str, str], cache: Cache | None) -> _DialectRoots | None:
    raw = cache.find_note(_note_name()) if cache is not None else None
    try:
        roots = None if raw is None else msgspec.msgpack.decode(raw, type=_DialectRoots)
    except msgspec.MsgspecError:
        return None
    if roots is None or any(environment.get(name) != value for name, value in roots.variables.items()):
        return None
    return roots


def _ask_dialects(environment: Mapping[str, str], cache: Cache | None) -> _DialectRoots:
    recording = _RecordingEnvironment(environment)
    dialects = {name: dialect_named(name) for name in plugins.names("dialects")}
    folders = {name: tuple(dialect.session_roots(recording)) for name, dialect in dialects.items()}
    barren = {name: dialect.traits.skipped_folders for name, dialect in dialects.items()}
    file_names = {name: dialect.traits.session_names for name, dialect in dialects.items()}
    indexed = frozenset(
        name for name, dialect in dialects.items() if dialect.traits.has_title_file or dialect.traits.newest_file_counts
    )
    roots = _DialectRoots(recording.variables, folders, barren, file_names, indexed)
    if cache is not None:
        try:
            cache.store_note(_note_name(), msgspec.msgpack.encode(roots))
        except UnicodeEncodeError:
            return roots  # a variable with invalid Unicode: computed each time
    return roots


def _note_name() -> str:
    """Name of the cached note; it depends on the installed dialects and on this version of the module."""
    return f"roots {os.stat(__file__).st_mtime_ns} {' '.join(plugins.names('dialects'))}"


class _RecordingEnvironment(Mapping[str, str]):
    """An environment that records which variables are read."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.variables: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> str:
        self.variables[name] = self._environment.get(name)
        return self._environment[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environment)

    def __len__(self) -> int:
        return len(self._environment)
