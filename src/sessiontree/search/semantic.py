"""Semantic search: merges a ranking by embeddings with the ranking by words. Optional and off by default.

Sign bits of vectors select a shortlist of some hundred lines (`vector_db`); those are read again and their full vectors
compared. Reciprocal rank fusion merges the rankings: each adds 1 / (60 + rank) to a session's score. So sessions in
both rankings come first, and the two kinds of scores never have to be compared.

A semantic hit is read from the file like any other; its snippet has no marked matches.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from sessiontree.core.entries import milliseconds
from sessiontree.dialects.texts import Line
from sessiontree.errors import SessionTreeError, StoreError
from sessiontree.library.roots import dialect_named
from sessiontree.library.session_store import open_store
from sessiontree.library.summary import Summary
from sessiontree.search.branch_state import load_branches
from sessiontree.search.embedder import Embedder, find_embedder, similarity
from sessiontree.search.engine import HITS_PER_SESSION, Refresh, search
from sessiontree.search.file_chunks import line_at
from sessiontree.search.indexer import FileTexts, Progress, open_indexes
from sessiontree.search.matcher import Match, Matcher, RegexFinder
from sessiontree.search.query import And, Expression, Not, Query, Regex, terms
from sessiontree.search.results import Hit, Results
from sessiontree.search.session_filter import select_sessions
from sessiontree.search.snippets import snippet
from sessiontree.search.vector_db import KINDS, Passage, Vectors, iter_passages

if TYPE_CHECKING:
    from sessiontree.library.library import Library

_SMOOTHING = 60
"""Constant of reciprocal rank fusion; 60 is the usual value since the original paper."""
_FUSED = 200
"""Hits taken from each ranking; further pages do not exist."""
_SHORTLIST = 300
_PATTERN_SECONDS = 5.0


class _Near(Struct, frozen=True):
    """A line with its similarity to the query."""

    similarity: float
    passage: Passage
    line: Line
    found: Match


def search_by_meaning(
    library: Library,
    query: str,
    *,
    agent: str | None = None,
    since: int | datetime | None = None,
    project: str | os.PathLike[str] | None = None,
    limit: int = 20,
    offset: int = 0,
    per_session: int = HITS_PER_SESSION,
    refresh: Refresh = "auto",
    progress: Progress | None = None,
    match_progress: Progress | None = None,
    embedder: Embedder | None = None,
) -> Results:
    """Search by words and by meaning. The arguments are those of `search`."""
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
        match_progress=match_progress,
    )
    results = Results(by_words.query)
    results.notes, results.state = by_words.notes, by_words.state
    results.unindexed, results.sessions, results.offset = by_words.unindexed, by_words.sessions, offset
    results.is_complete, results.unsearched = by_words.is_complete, by_words.unsearched
    words = " ".join(getattr(term, "text", "") for term in terms(results.query.where) if not isinstance(term, Regex))
    near: list[Hit] = []
    if words.strip():
        near = _nearest_hits(library, results.query, words, model, project, refresh, progress)
    else:
        results.notes.append("the query has no words to compare by meaning; only filters were applied")
    hits = fuse_rankings(list(by_words), near, per_session)
    results.set_hits(hits[offset : offset + limit])
    results.next_offset = offset + limit if len(hits) > offset + limit else None
    results.seconds = time.perf_counter() - start
    return results


def fuse_rankings(by_words: Sequence[Hit], by_meaning: Sequence[Hit], per_session: int) -> list[Hit]:
    """Merge two rankings, hits grouped by session; hits by words come first within a session."""
    scores: dict[str, float] = {}
    found: dict[str, dict[int, Hit]] = {}
    for hits in (by_words, by_meaning):
        ranks = {path: rank for rank, path in enumerate(dict.fromkeys(hit.session.ref for hit in hits), 1)}
        for path, rank in ranks.items():
            scores[path] = scores.get(path, 0.0) + 1 / (_SMOOTHING + rank)
        for hit in hits:
            found.setdefault(hit.session.ref, {}).setdefault(hit.offset, hit)
    recency = {path: next(iter(hits.values())).session.recency for path, hits in found.items()}
    ordered = sorted(scores, key=lambda path: (-scores[path], -recency[path]))
    return [
        msgspec.structs.replace(hit, score=round(scores[path], 6))
        for path in ordered
        for hit in list(found[path].values())[:per_session]
    ]


def _nearest_hits(
    library: Library,
    query: Query,
    words: str,
    model: Embedder,
    project: str | os.PathLike[str] | None,
    refresh: Refresh,
    progress: Progress | None,
) -> list[Hit]:
    vector = model.embed([words])[0]
    sessions = {summary.ref: summary for summary in select_sessions(library, query.filters, project)}
    try:
        passages = heapq.nsmallest(_SHORTLIST, _nearest(library, model, vector, set(sessions), refresh, progress))
    except sqlite3.Error as error:
        raise StoreError(f"the vectors cannot be used ({error}); search without --semantic") from None
    matcher = Matcher(msgspec.structs.replace(query, where=_negated_terms(query.where)), RegexFinder(_PATTERN_SECONDS))
    matches = sorted(
        _read_matches(passages, sessions, vector, model, matcher, query), key=lambda match: -match.similarity
    )
    return list(_build_hits(library, matches, sessions, query))[:_FUSED]


def _nearest(
    library: Library,
    model: Embedder,
    vector: Sequence[float],
    refs: set[str],
    refresh: Refresh,
    progress: Progress | None,
) -> Iterator[Passage]:
    """The nearest passages of the sessions in files, and of those in a repository that keeps their vectors."""
    image = library.home_image("meaning")
    for part in (None,) if image is None else (None, image):
        with Vectors(library.environment, model, part) as vectors:
            if refresh != "none":
                vectors.update(library.indexable() if part is None else library.stored(), progress)
            yield from vectors.nearest(vector, refs, _SHORTLIST)


def _negated_terms(where: Expression | None) -> Expression | None:
    """The negated parts of a query. They also apply to semantic hits; required words do not."""
    parts = where.parts if isinstance(where, And) else (where,) if where is not None else ()
    refused = tuple(part for part in parts if isinstance(part, Not))
    return And(refused) if len(refused) > 1 else refused[0] if refused else None


def _read_matches(
    passages: Sequence[Passage],
    sessions: dict[str, Summary],
    vector: Sequence[float],
    model: Embedder,
    matcher: Matcher,
    query: Query,
) -> Iterator[_Near]:
    """Read the shortlist; yield lines above the similarity threshold that pass the filters."""
    read: list[tuple[Passage, Line, Match, list[str]]] = []
    for passage in passages:
        summary = sessions[passage.path]
        with contextlib.closing(open_store(summary)) as store:
            try:
                raw = line_at(store, passage.offset)
            except SessionTreeError:
                continue  # deleted meanwhile
            texts = FileTexts(dialect_named(summary.agent), summary.ref, store)
            for complete in texts.texts(raw, passage.offset):
                # Thinking and tool calls on the same line have no vector, so they must not be shown as the hit.
                line = msgspec.structs.replace(complete, texts=[text for text in complete.texts if text.kind in KINDS])
                pieces = list(iter_passages(line))
                found = matcher.match(line) if pieces and _is_in_time(line, query) else None
                if found is not None:
                    read.append((passage, line, found, pieces))
    vectors = iter(model.embed([piece for *_, pieces in read for piece in pieces]) if read else [])
    for passage, line, found, pieces in read:
        nearest = max(similarity(vector, next(vectors)) for _ in pieces)
        if nearest >= model.least:
            yield _Near(nearest, passage, line, found)


def _is_in_time(line: Line, query: Query) -> bool:
    filters = query.filters
    if filters.since is None and filters.before is None:
        return True
    at = milliseconds(line.time) if line.time else None
    return at is not None and (filters.since or 0) <= at and (filters.before is None or at < filters.before)


def _build_hits(
    library: Library, matches: Sequence[_Near], sessions: dict[str, Summary], query: Query
) -> Iterator[Hit]:
    with open_indexes(library) as parts:
        known = {part.is_of_home: part.index.store.indexed_files() for part in parts}
        indexes = {part.is_of_home: part.index for part in parts}
        for near in matches:
            summary, line, found = sessions[near.passage.path], near.line, near.found
            is_of_home = library.is_stored(summary)
            index, indexed = indexes[is_of_home], known[is_of_home].get(summary.ref)
            file = None if indexed is None else indexed.file
            state = load_branches(index.store, file, summary, summary.size).state(near.passage.offset)
            is_abandoned = state == "abandoned"
            if query.filters.branch == "active" and state != "active":
                continue
            if query.filters.abandoned is not None and query.filters.abandoned != is_abandoned:
                continue
            leaf = ("--leaf", line.id) if line.id and state != "active" else ()
            yield Hit(
                session=summary,
                entry=line.id,
                offset=near.passage.offset,
                kind=found.text.kind,
                role=found.text.role,
                tool=found.text.tool,
                model=line.model,
                time=milliseconds(line.time) if line.time else None,
                is_error=found.text.is_error,
                branch=state,
                snippet=snippet(found.content, ()),
                score=round(near.similarity, 4),
                command=("sessiontree", "show", summary.ref, *leaf),
            )
