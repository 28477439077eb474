"""The list of sessions that a front end shows: filtered by what the user types, sorted, grouped and threaded.

It works on summaries that are known already and opens no file, so it can be computed at every keystroke. Text
inside sessions is for `Library.search`, whose hits a front end adds when they arrive (`with_hits`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from sessiontree.library.summary import Summary
from sessiontree.library.threads import ThreadMember, build_threads
from sessiontree.search.query import And, Expression, Filters, Not, Or, Phrase, Query, Regex, Word, terms
from sessiontree.search.query_parser import parse
from sessiontree.search.session_filter import filter_sessions
from sessiontree.views.listing import session_cost

Sort: TypeAlias = Literal["recent", "relevance", "size", "cost"]
Group: TypeAlias = Literal["none", "project", "agent", "tag"]

SORTS: tuple[Sort, ...] = ("recent", "relevance", "size", "cost")
GROUPS: tuple[Group, ...] = ("none", "project", "agent", "tag")

_SORT_KEYS: dict[str, Callable[[Summary], float]] = {
    "recent": lambda summary: summary.recency,
    "size": lambda summary: summary.size,
    "cost": lambda summary: session_cost(summary).dollars or 0.0,
}

_START_OF_WORD, _INSIDE_WORD, _SCATTERED = 3.0, 2.0, 1.0
_NO_TAGS: Mapping[str, Sequence[str]] = {}


class ListOptions(Struct, frozen=True):
    """What the user chose."""

    query: str = ""
    sort: Sort = "recent"
    group: Group = "none"
    unfolded: frozenset[str] = frozenset()
    """References of the sessions whose sub-agents are shown."""
    health: str | None = None
    """Only sessions in this state (`Summary.health`)."""


class Heading(Struct, frozen=True):
    """The first row of a group."""

    text: str
    sessions: int


Row: TypeAlias = Heading | ThreadMember


class SessionList(Struct, frozen=True):
    """The rows to show."""

    rows: tuple[Row, ...]
    sessions: int
    """Number of sessions, without sub-agents."""
    folded: Mapping[str, int] = {}
    """Reference of a session -> number of its sub-agents that are folded."""
    notes: tuple[str, ...] = ()
    """Messages about parts of the query that were not read as typed."""


def list_sessions(
    known: Iterable[Summary],
    options: ListOptions | None = None,
    *,
    is_in_scope: Callable[[Summary], bool] | None = None,
    tags: Mapping[str, Sequence[str]] = _NO_TAGS,
    copies: Mapping[str, str] | None = None,
    problem: str = "",
) -> SessionList:
    """Select and arrange sessions. `tags` are by reference, `copies` as in `Library`; `problem` becomes a note."""
    options = options or ListOptions()
    query = parse(options.query)
    everything = list(known)
    subagents = [summary for summary in everything if summary.kind == "subagent"]
    sessions = [summary for summary in everything if summary.kind == "session"]
    if is_in_scope is not None:
        sessions = [summary for summary in sessions if is_in_scope(summary)]
    sessions = _filter_facts(filter_sessions(sessions, query.filters), query.filters, options.health, tags)
    scores = {}
    if query.where is not None:
        scores = {
            summary.ref: score for summary in sessions if (score := match_words(query.where, _haystack(summary))) > 0
        }
        sessions = [summary for summary in sessions if summary.ref in scores]
    if options.sort == "relevance" or (scores and options.sort == "recent"):
        sessions.sort(key=lambda summary: (scores.get(summary.ref, 0.0), summary.recency), reverse=True)
    else:
        sessions.sort(key=_SORT_KEYS[options.sort], reverse=True)
    is_threaded = options.sort == "recent" and not scores and options.group == "none"
    is_threaded = is_threaded and (
        bool(copies) or any(summary.forked_from for summary in sessions)
    )  # arranging is slow
    members = build_threads(sessions, copies) if is_threaded else [ThreadMember(summary) for summary in sessions]
    folded = _count_subagents(subagents, sessions)
    members = _with_unfolded(members, subagents, options.unfolded)
    rows = _group(members, options.group, tags)
    return SessionList(rows, len(sessions), folded, (*query.notes, *([problem] if problem else [])))


def _filter_facts(
    sessions: list[Summary], filters: Filters, health: str | None, tags: Mapping[str, Sequence[str]]
) -> list[Summary]:
    """Apply the filters on tags, model and health."""
    if filters.tag:
        sessions = [each for each in sessions if filters.tag.accepts(tags.get(each.ref, ()).__contains__)]
    if filters.model:
        sessions = [each for each in sessions if filters.model.accepts(partial(_is_in, each.model or ""))]
    return sessions if health is None else [each for each in sessions if each.health == health]


def _is_in(text: str, wanted: str) -> bool:
    return wanted.lower() in text.lower()


def with_hits(found: SessionList, hits: Iterable[Summary]) -> SessionList:
    """Add sessions in whose text the query was found, after those whose title or project matches."""
    shown = {row.summary.ref for row in found.rows if isinstance(row, ThreadMember)}
    added = [ThreadMember(summary) for summary in dict.fromkeys(hits) if summary.ref not in shown]
    if not added:
        return found
    return replace(found, rows=(*found.rows, *added), sessions=found.sessions + len(added))


def complete_filter(text: str, values: Mapping[str, Sequence[str]], names: Sequence[str]) -> str | None:
    """Complete the filter at the end of a query (`ag` -> `agent:`, `agent:cl` -> `agent:claude `); None if unknown."""
    head, _, word = text.rpartition(" ")
    negation = "-" if word.startswith("-") else ""
    name, colon, beginning = word.removeprefix("-").partition(":")
    if not name:
        return None
    prefix = f"{head} {negation}" if head else negation
    if not colon:
        found = next((known for known in names if known.startswith(name.lower())), None)
        return f"{prefix}{found}:" if found else None
    matching = [value for value in values.get(name.lower(), ()) if value.lower().startswith(beginning.lower())]
    if not matching:
        return None
    if len(matching) == 1:
        return f"{prefix}{name}:{matching[0]} "
    common = _common_prefix(matching)
    return f"{prefix}{name}:{common}" if len(common) > len(beginning) else f"{prefix}{name}:{matching[0]}"


def _common_prefix(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    length = next((at for at, letter in enumerate(first) if last[at : at + 1] != letter), len(first))
    return first[:length]


def match_words(expression: Expression, text: str) -> float:
    """How well a lowercase text matches an expression; 0 if it does not. Letters of a word may be scattered."""
    match expression:
        case Word(word) | Phrase(word):
            return match_word(word.lower(), text)
        case Regex():
            return 0.0  # patterns are for the text of sessions
        case Not(of):
            return 0.0 if match_words(of, text) > 0 else 1.0
        case Or(parts):
            return max(match_words(part, text) for part in parts)
        case And(parts):
            scores = [match_words(part, text) for part in parts]
            return sum(scores) if all(scores) else 0.0


def searched_words(text: str) -> list[str]:
    """The words of a query, for highlighting."""
    return [term.text for term in terms(parse(text).where) if isinstance(term, Word | Phrase)]


def needs_full_text(query: Query) -> bool:
    """Whether a query asks for something that summaries do not have."""
    return query.where is not None


def match_word(word: str, text: str) -> float:
    at = text.find(word)
    if at >= 0:
        is_start = at == 0 or not text[at - 1].isalnum()
        return _START_OF_WORD if is_start else _INSIDE_WORD
    if len(word) < 3:
        return 0.0  # two letters are scattered in nearly every text
    found = _scattered(word).search(text)
    if found is None:
        return 0.0
    spread = found.end() - found.start() - len(word)
    return _SCATTERED / (1 + spread) if spread <= 3 * len(word) else 0.0


@lru_cache(64)
def _scattered(word: str) -> re.Pattern[str]:
    return re.compile(".{0,12}?".join(map(re.escape, word)))


def _haystack(summary: Summary) -> str:
    project = summary.cwd.rpartition("/")[2]
    return _lowered(summary.title, project, summary.git_branch or "")


@lru_cache(65_536)
def _lowered(title: str, project: str, branch: str) -> str:
    return f"{title}\n{project}\n{branch}".lower()


def _count_subagents(subagents: Iterable[Summary], sessions: Iterable[Summary]) -> dict[str, int]:
    shown = {summary.ref for summary in sessions}
    counts: dict[str, int] = {}
    for summary in subagents:
        if summary.parent in shown:
            assert summary.parent is not None
            counts[summary.parent] = counts.get(summary.parent, 0) + 1
    return counts


def _with_unfolded(
    members: Sequence[ThreadMember], subagents: Sequence[Summary], unfolded: frozenset[str]
) -> list[ThreadMember]:
    if not unfolded:
        return list(members)
    by_parent: dict[str, list[Summary]] = {}
    for summary in sorted(subagents, key=lambda summary: summary.created or summary.modified):
        if summary.parent in unfolded:
            assert summary.parent is not None
            by_parent.setdefault(summary.parent, []).append(summary)
    found: list[ThreadMember] = []
    for member in members:
        found.append(member)
        found += [
            ThreadMember(summary, member.depth + 1, "subagent") for summary in by_parent.get(member.summary.ref, ())
        ]
    return found


def _group(members: Sequence[ThreadMember], group: Group, tags: Mapping[str, Sequence[str]]) -> tuple[Row, ...]:
    if group == "none":
        return tuple(members)
    groups: dict[str, list[ThreadMember]] = {}
    for member in members:
        for name in _group_names(member.summary, group, tags):
            groups.setdefault(name, []).append(member)
    rows: list[Row] = []
    for name in sorted(groups, key=lambda name: (not name, name.lower())) if group == "tag" else groups:
        rows.append(Heading(name or _UNNAMED[group], len(groups[name])))
        rows += groups[name]
    return tuple(rows)


_UNNAMED = {"project": "no project", "agent": "unknown agent", "tag": "no tag"}


def _group_names(summary: Summary, group: Group, tags: Mapping[str, Sequence[str]]) -> Sequence[str]:
    match group:
        case "project":
            return (summary.cwd,)
        case "agent":
            return (summary.agent,)
        case "tag":
            return tags.get(summary.ref) or ("",)
        case "none":
            return ()
