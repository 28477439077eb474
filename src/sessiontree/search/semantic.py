"""Search by meaning beside search by words: two rankings of sessions made one. Off by default, and never needed.

The signs of vectors name some hundred lines that may be near (`vectors`); these are read again, and their whole vectors
compared. A session's place is then decided by its places in both rankings (reciprocal rank fusion: each adds one part
of sixty and its rank), so what both find comes first and neither has to be weighed against the other.

A hit by meaning is a line as it stands in the file now, like any other; nothing in its snippet is marked.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from sessiontree.core.context import milliseconds
from sessiontree.errors import StoreError
from sessiontree.library.roots import dialect_named
from sessiontree.library.summary import Summary
from sessiontree.search.branch_state import branches_of
from sessiontree.search.embedder import Embedder, find_embedder, similarity
from sessiontree.search.engine import HITS_OF_A_SESSION, Hit, Refresh, Results, search
from sessiontree.search.file_chunks import line_at, open_file
from sessiontree.search.indexer import FileReading, Index, Progress
from sessiontree.search.matcher import Found, Matcher, RegexFinder
from sessiontree.search.query_parser import And, Expression, Not, Query, Regex, terms
from sessiontree.search.session_filter import sessions_asked
from sessiontree.search.snippets import snippet
from sessiontree.search.text_extractor import Line
from sessiontree.search.vector_db import KINDS, Place, Vectors, pieces_of

if TYPE_CHECKING:
    from sessiontree.library.library import Library

_SMOOTHING = 60
"""Of the fusion; the number that everyone uses since it was first tried."""
_FUSED = 200
"""Hits of each ranking that are looked at; there are no pages behind them."""
_SHORTLIST = 300
_PATTERN_SECONDS = 5.0


class _Near(Struct, frozen=True):
    """A line that means something alike."""

    similarity: float
    place: Place
    line: Line
    found: Found


def search_by_meaning(
    library: Library,
    query: str,
    *,
    agent: str | None = None,
    since: int | datetime | None = None,
    project: str | os.PathLike[str] | None = None,
    limit: int = 20,
    offset: int = 0,
    per_session: int = HITS_OF_A_SESSION,
    refresh: Refresh = "auto",
    progress: Progress | None = None,
    embedder: Embedder | None = None,
) -> Results:
    """What fits a query by its words or by its meaning. The arguments are those of `search`."""
    start = time.perf_counter()
    model = embedder or find_embedder()
    by_words = search(
        library,
        query,
        agent=agent,
        since=since,
        project=project,
        limit=_FUSED,
        per_session=per_session,
        refresh=refresh,
        progress=progress,
    )
    results = Results(by_words.query)
    results.notes, results.state = by_words.notes, by_words.state
    results.unindexed, results.sessions, results.offset = by_words.unindexed, by_words.sessions, offset
    meant = " ".join(getattr(term, "text", "") for term in terms(results.query.where) if not isinstance(term, Regex))
    near: list[Hit] = []
    if meant.strip():
        near = _near(library, results.query, meant, model, project, refresh, progress)
    else:
        results.notes.append("without words there is no meaning to look for; only the filters were used")
    hits = fused(list(by_words), near, per_session)
    results.put(hits[offset : offset + limit])
    results.next_offset = offset + limit if len(hits) > offset + limit else None
    results.seconds = time.perf_counter() - start
    return results


def fused(by_words: Sequence[Hit], by_meaning: Sequence[Hit], per_session: int) -> list[Hit]:
    """Two rankings of hits as one, the hits of each session together; its words before its meaning."""
    scores: dict[str, float] = {}
    found: dict[str, dict[int, Hit]] = {}
    for hits in (by_words, by_meaning):
        ranks = {path: rank for rank, path in enumerate(dict.fromkeys(hit.session.path for hit in hits), 1)}
        for path, rank in ranks.items():
            scores[path] = scores.get(path, 0.0) + 1 / (_SMOOTHING + rank)
        for hit in hits:
            found.setdefault(hit.session.path, {}).setdefault(hit.offset, hit)
    recency = {path: next(iter(hits.values())).session.recency for path, hits in found.items()}
    ordered = sorted(scores, key=lambda path: (-scores[path], -recency[path]))
    return [
        msgspec.structs.replace(hit, score=round(scores[path], 6))
        for path in ordered
        for hit in list(found[path].values())[:per_session]
    ]


def _near(
    library: Library,
    query: Query,
    meant: str,
    model: Embedder,
    project: str | os.PathLike[str] | None,
    refresh: Refresh,
    progress: Progress | None,
) -> list[Hit]:
    vector = model.embed([meant])[0]
    sessions = {one.path: one for one in sessions_asked(library, query.filters, project)}
    try:
        with Vectors(library.environment, model) as vectors:
            if refresh != "none":
                vectors.update(library.everything(), progress)
            places = vectors.nearest(vector, set(sessions), _SHORTLIST)
    except sqlite3.Error as error:
        raise StoreError(f"the vectors cannot be used ({error}); search without --semantic") from None
    matcher = Matcher(msgspec.structs.replace(query, where=_refused(query.where)), RegexFinder(_PATTERN_SECONDS))
    seen = sorted(_seen(places, sessions, vector, model, matcher, query), key=lambda one: -one.similarity)
    return list(_shown(library, seen, sessions, query))[:_FUSED]


def _refused(where: Expression | None) -> Expression | None:
    """What may not be there counts for hits by meaning, too; what has to be there need not, in these words."""
    parts = where.parts if isinstance(where, And) else (where,) if where is not None else ()
    refused = tuple(part for part in parts if isinstance(part, Not))
    return And(refused) if len(refused) > 1 else refused[0] if refused else None


def _seen(
    places: Sequence[Place],
    sessions: dict[str, Summary],
    vector: Sequence[float],
    model: Embedder,
    matcher: Matcher,
    query: Query,
) -> Iterator[_Near]:
    """The lines of the shortlist that mean enough, and that the filters let through."""
    read: list[tuple[Place, Line, Found, list[str]]] = []
    for place in places:
        one = sessions[place.path]
        try:
            descriptor = open_file(one.path)
        except OSError:
            continue  # it was deleted a moment ago
        try:
            reading = FileReading(dialect_named(one.agent), one.path, descriptor)
            for whole in reading.texts(line_at(descriptor, place.offset), place.offset):
                # Of thoughts and calls on the same line nothing was compared, so nothing is shown.
                line = msgspec.structs.replace(whole, texts=[text for text in whole.texts if text.kind in KINDS])
                pieces = list(pieces_of(line))
                found = matcher.fit(line) if pieces and _is_in_time(line, query) else None
                if found is not None:
                    read.append((place, line, found, pieces))
        finally:
            os.close(descriptor)
    vectors = iter(model.embed([piece for *_, pieces in read for piece in pieces]) if read else [])
    for place, line, found, pieces in read:
        nearest = max(similarity(vector, next(vectors)) for _ in pieces)
        if nearest >= model.least:
            yield _Near(nearest, place, line, found)


def _is_in_time(line: Line, query: Query) -> bool:
    filters = query.filters
    if filters.since is None and filters.before is None:
        return True
    at = milliseconds(line.time) if line.time else None
    return at is not None and (filters.since or 0) <= at and (filters.before is None or at < filters.before)


def _shown(library: Library, seen: Sequence[_Near], sessions: dict[str, Summary], query: Query) -> Iterator[Hit]:
    with Index(library.environment) as index:
        known = index.store.known()
        for near in seen:
            one, line, found = sessions[near.place.path], near.line, near.found
            file = known[one.path].file if one.path in known else None
            state = branches_of(index.store, file, one, one.size).state(near.place.offset)
            is_abandoned = state == "abandoned"
            if query.filters.branch == "active" and state != "active":
                continue
            if query.filters.abandoned is not None and query.filters.abandoned != is_abandoned:
                continue
            leaf = ("--leaf", line.id) if line.id and state != "active" else ()
            yield Hit(
                session=one,
                entry=line.id,
                offset=near.place.offset,
                kind=found.text.kind,
                role=found.text.role,
                tool=found.text.tool,
                model=line.model,
                time=milliseconds(line.time) if line.time else None,
                is_error=found.text.is_error,
                branch=state,
                snippet=snippet(found.said, ()),
                score=round(near.similarity, 4),
                command=("sessiontree", "show", one.path, *leaf),
            )
