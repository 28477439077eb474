"""Threads: forks below the session they came from, in any dialect, and sub-agents below their parent."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from sessiontree.library.summary import Summary


class ThreadMember(Struct, frozen=True):
    """A session with its depth and role in a thread."""

    summary: Summary
    depth: int = 0
    relation: str = ""
    """`fork`, `copy` (converted for another agent), `subagent`, or empty for a root."""


def with_subagents(
    sessions: Sequence[Summary], subagents: Sequence[Summary], copies: Mapping[str, str] | None = None
) -> list[ThreadMember]:
    """Sessions in order, each followed by its copies and sub-agents; sub-agents without a listed parent come last.

    `copies` maps the references of converted copies to those of their origins.
    """
    origins = copies or {}
    return _arrange(
        [*sessions, *subagents],
        lambda summary, index: _parent_of(summary, index) or index.by_ref.get(origins.get(summary.ref, "")),
        origins,
        by_thread=bool(origins),
    )


def build_threads(sessions: Sequence[Summary], copies: Mapping[str, str] | None = None) -> list[ThreadMember]:
    """All sessions as threads; a thread is sorted by its newest member. `copies` as for `with_subagents`."""
    origins = copies or {}
    return _arrange(
        sessions,
        lambda summary, index: (
            _parent_of(summary, index) or index.by_ref.get(origins.get(summary.ref, "")) or _origin_of(summary, index)
        ),
        origins,
        by_thread=True,
    )


class _Index:
    """Sessions by path, by id and by the id in the file name."""

    def __init__(self, sessions: Sequence[Summary]) -> None:
        self._sessions = sessions
        self.by_ref = {summary.ref: summary for summary in sessions}

    @functools.cached_property
    def by_id(self) -> dict[str, list[Summary]]:
        found: dict[str, list[Summary]] = {}
        for summary in self._sessions:
            if summary.kind == "session":
                found.setdefault(summary.id, []).append(summary)
        return found

    @functools.cached_property
    def oldest(self) -> dict[str, Summary]:
        """By id: the oldest session. Ids of one session only are left out."""
        several = {id: copies for id, copies in self.by_id.items() if len(copies) > 1}
        return {id: min(copies, key=lambda copy: (copy.modified, copy.ref)) for id, copies in several.items()}

    def find(self, named: str, asking: Summary) -> Summary | None:
        """Find a session by path or id; of several with one id, that of the same agent."""
        if named in self.by_ref:
            return self.by_ref[named]
        id = named
        if "/" in named or named.endswith(".jsonl"):  # the file was moved, but its name still has the id
            stem = os.path.basename(named).removesuffix(".jsonl")
            id = stem if stem in self.by_id else stem.rpartition("_")[2]
        found = [summary for summary in self.by_id.get(id, ()) if summary.ref != asking.ref]
        own = [summary for summary in found if summary.agent == asking.agent]
        return next(iter(own or found), None)


def _parent_of(summary: Summary, index: _Index) -> Summary | None:
    return index.by_ref.get(summary.parent) if summary.parent else None


def _origin_of(summary: Summary, index: _Index) -> Summary | None:
    """The origin of a fork. Of copies of one session in several dialects, the oldest is the origin."""
    if summary.forked_from:
        return index.find(summary.forked_from, summary)
    first = index.oldest.get(summary.id) if summary.kind == "session" else None
    return first if first is not None and first.ref != summary.ref and first.agent != summary.agent else None


def _arrange(
    sessions: Sequence[Summary],
    above: Callable[[Summary, _Index], Summary | None],
    copies: Mapping[str, str],
    *,
    by_thread: bool,
) -> list[ThreadMember]:
    index = _Index(sessions)
    children: dict[str, list[Summary]] = {}
    parents: dict[str, str] = {}
    for summary in sessions:
        if not (summary.parent or summary.forked_from or copies or summary.id in index.oldest):
            continue  # the common case
        parent = above(summary, index)
        if parent is not None and not _descends_from(parents, parent.ref, summary.ref):
            parents[summary.ref] = parent.ref
            children.setdefault(parent.ref, []).append(summary)
    tops = [summary for summary in sessions if summary.ref not in parents]
    if by_thread and children:  # else they are in order already
        positions = {summary.ref: at for at, summary in enumerate(sessions)}

        def first_position(summary: Summary) -> int:
            if summary.ref not in children:
                return positions[summary.ref]
            return min(positions[member.summary.ref] for member in _flatten(summary, children, copies))

        tops.sort(key=first_position)
    arranged: list[ThreadMember] = []
    for summary in tops:
        if summary.ref in children:
            arranged += _flatten(summary, children, copies)
        else:
            arranged.append(ThreadMember(summary))
    return arranged


def _descends_from(parents: dict[str, str], start: str, wanted: str) -> bool:
    """Whether one session descends from the other: forks that name each other must not form a cycle."""
    here: str | None = start
    while here is not None and here != wanted:
        here = parents.get(here)
    return here == wanted


def _flatten(top: Summary, children: dict[str, list[Summary]], copies: Mapping[str, str]) -> Iterator[ThreadMember]:
    waiting = [ThreadMember(top)]
    while waiting:
        member = waiting.pop()
        yield member
        for child in reversed(children.get(member.summary.ref, [])):
            is_copy = copies.get(child.ref) == member.summary.ref
            relation = "subagent" if child.kind == "subagent" else "copy" if is_copy else "fork"
            waiting.append(ThreadMember(child, member.depth + 1, relation))
