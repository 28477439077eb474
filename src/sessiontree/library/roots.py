"""The folders where each agent keeps its sessions. What they are is for the dialects to say; what was chosen wins.

Asking the dialects means to import them all, which takes longer than a listing in which nothing changed. So their
answers are remembered together with the variables they asked for, and hold as long as those are what they were.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from sessiontree import plugins
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from sessiontree.dialects.contract import Dialect
    from sessiontree.library.cache import Cache


class Root(Struct, frozen=True):
    """A folder of sessions, by its real path, and the agents that may have written there."""

    folder: str
    agents: tuple[str, ...]
    barren: frozenset[str] = frozenset()
    """Names of folders below it that never hold a session."""


class _Answers(Struct, frozen=True):
    """What the dialects said, and which variables they asked for, with their values then."""

    asked: dict[str, str | None]
    folders: dict[str, tuple[str, ...]]
    barren: dict[str, frozenset[str]]


def dialect_named(name: str) -> Dialect:
    found: Dialect = plugins.load("dialects", name)
    return found


def parse_roots(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`DIALECT=DIR`, several times -> the folders chosen for each dialect."""
    chosen: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, folder = text.partition("=")
        if not equals or not folder or name not in plugins.names("dialects"):
            known = ", ".join(plugins.names("dialects"))
            raise UsageError(f"{text!r}: expected DIALECT=DIR with one of {known}")
        chosen[name] = (*chosen.get(name, ()), folder)
    return chosen


def find_roots(
    environment: Mapping[str, str],
    chosen: Mapping[str, Sequence[str]] | None = None,
    home: str | None = None,
    cache: Cache | None = None,
) -> list[Root]:
    """The roots of all dialects that exist; folders chosen for a dialect stand in place of its own.

    Two dialects may look into one folder (Pi and oh-my-pi share a variable): it is one root then.
    """
    if home is not None:
        environment = {**environment, "SESSIONTREE_HOME": home}
    answers = _remembered(environment, cache) or _asked(environment, cache)
    agents: dict[str, list[str]] = {}
    for name, own in answers.folders.items():
        for folder in (chosen or {}).get(name) or own:
            real = os.path.realpath(os.path.expanduser(folder))
            if name not in agents.setdefault(real, []):
                agents[real].append(name)
    return [
        Root(folder, tuple(names), answers.barren[names[0]])
        for folder, names in agents.items()
        if os.path.isdir(folder)
    ]


def _remembered(environment: Mapping[str, str], cache: Cache | None) -> _Answers | None:
    raw = cache.find_note(_note_name()) if cache is not None else None
    try:
        answers = None if raw is None else msgspec.msgpack.decode(raw, type=_Answers)
    except msgspec.MsgspecError:
        return None
    if answers is None or any(environment.get(name) != value for name, value in answers.asked.items()):
        return None
    return answers


def _asked(environment: Mapping[str, str], cache: Cache | None) -> _Answers:
    watched = _Watched(environment)
    dialects = {name: dialect_named(name) for name in plugins.names("dialects")}
    folders = {name: tuple(dialect.session_roots(watched)) for name, dialect in dialects.items()}
    barren = {name: dialect.skipped_folders for name, dialect in dialects.items()}
    answers = _Answers(watched.asked, folders, barren)
    if cache is not None:
        try:
            cache.store_note(_note_name(), msgspec.msgpack.encode(answers))
        except UnicodeEncodeError:
            return answers  # a variable that is no text: they are asked each time
    return answers


def _note_name() -> str:
    """Other dialects, or another installation of ours, have other answers."""
    return f"roots {os.stat(__file__).st_mtime_ns} {' '.join(plugins.names('dialects'))}"


class _Watched(Mapping[str, str]):
    """An environment that notes what it is asked for."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.asked: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> str:
        self.asked[name] = self._environment.get(name)
        return self._environment[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environment)

    def __len__(self) -> int:
        return len(self._environment)
