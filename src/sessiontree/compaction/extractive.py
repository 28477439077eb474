"""A summarizer without a model: takes points from the messages, in the same sections as any other summary.

The same messages always give the same text. The points of a previous summary are kept verbatim, so that even after many
compactions a point is not a summary of a summary. The length is limited: if a section has too many points, older ones
are dropped, and a line counts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sessiontree.compaction.message_facts import MessageFacts, Run, Sentences, find_facts, focus_words, sentences
from sessiontree.compaction.sections import (
    BLOCKED,
    CONSTRAINTS,
    CRITICAL,
    DECISIONS,
    DONE,
    EARLIER,
    GOAL,
    IN_PROGRESS,
    NEXT,
    TURN,
    parse_sections,
    render_sections,
)
from sessiontree.compaction.summarizers import Request, Summary
from sessiontree.compaction.token_estimate import measured_tokens
from sessiontree.core.messages import Assistant, Message, User, message_text

# Written to session files and removed again from a previous summary. Do not change: it must match older files.
HEADER = (
    "(These notes were put together by rules out of the session's own entries. No model wrote them; what ends in … was "
    "shortened.)"
)

MAX_TOKENS = 4_000
"""Largest summary in tokens, even if the request allows more."""

_MAX_POINTS = {
    GOAL: 14,
    CONSTRAINTS: 14,
    DONE: 24,
    IN_PROGRESS: 8,
    BLOCKED: 8,
    DECISIONS: 18,
    NEXT: 10,
    CRITICAL: 24,
    EARLIER: 60,
    TURN: 20,
}
"""Largest number of points per section."""

_FIRST = 2
"""Points at the start of a section that are never dropped: what the work began with."""

_MAX_SENTENCES = 400
"""Demands, and decisions, to find: if there are more, those in the middle are not even counted."""

# Like `HEADER`, these texts are parsed from previous summaries of older files.
_MORE = re.compile(r"\((at least )?(\d+) more (?:is|are) not listed\)\Z")
_ASKED, _DID, _ANSWERED = "Asked: ", "Did: ", "Said last: "
Points = dict[str, list[str]]
T = TypeVar("T")


class ExtractiveSummarizer:
    """A Summarizer that uses rules instead of a model."""

    name = "extractive"

    def __call__(self, request: Request, /) -> Summary:
        facts = find_facts(request.messages, request.agent, _MAX_SENTENCES)
        if request.kind == "turn":
            points: Points = {TURN: _turn(facts)}
            fit = _fit(points, min(request.max_tokens, MAX_TOKENS // 2))
            return Summary("\n".join(f"- {_indented(point)}" for point in fit[TURN]) or "- (no messages)")
        previous = _previous_points(request.previous)
        points = _merge(previous, facts)
        if request.instructions:
            points[CRITICAL] += _focus_points(request.messages, request.instructions)
        limit = min(request.max_tokens, MAX_TOKENS)
        text = render_sections(_fit(points, limit - measured_tokens(HEADER)))
        return Summary(f"{HEADER}\n\n{_truncate(text, limit - measured_tokens(HEADER))}")


EXTRACTIVE = ExtractiveSummarizer()


def _previous_points(previous: str | None) -> Points:
    """Points of a previous summary, with those of a split turn distributed to the other sections."""
    if not previous:
        return {}
    found = parse_sections(previous.replace(HEADER, ""))
    for point in found.pop(TURN, []):
        if point.startswith(_ASKED):
            found.setdefault(GOAL, []).append(point.removeprefix(_ASKED))
        elif point.startswith(_DID):
            found.setdefault(DONE, []).append(point.removeprefix(_DID))
        else:
            found.setdefault(CRITICAL, []).append(point)
    return found


def _merge(previous: Points, facts: MessageFacts) -> Points:
    fresh = _points(facts)
    merged: Points = {}
    for name in _MAX_POINTS:
        before = previous.get(name, [])
        if name == BLOCKED and before:
            again = {_quoted(run.name) for run in facts.runs.values()}
            succeeded = {_quoted(run.name) for run in facts.runs.values() if run.ok}
            before = [point for point in before if not point.startswith(tuple(again))]
            settled = [point for point in previous.get(name, []) if point.startswith(tuple(succeeded))]
            fresh[CRITICAL] = [f"{point} (works since)" for point in settled] + fresh[CRITICAL]
        elif name in (IN_PROGRESS, NEXT):
            before = _still_open(before, facts)
        elif name == CRITICAL:
            before = [point for point in before if not point.startswith((_ANSWERED, "Ran "))]
        merged[name] = _distinct([*before, *fresh.get(name, [])])
    return merged


def _distinct(points: Sequence[str]) -> list[str]:
    """Remove duplicate points. Notes of dropped points are all kept, because their counts are added up."""
    notes = [point for point in points if _MORE.match(point)]
    return [*notes, *dict.fromkeys(point for point in points if not _MORE.match(point))]


def _still_open(points: Sequence[str], facts: MessageFacts) -> list[str]:
    """Points that were open in the previous summary and are still open."""
    requests = [point for point in points if point.startswith(_ASKED) and not facts.answers_earlier]
    if facts.lists_tasks or facts.plan:
        return requests
    return [point for point in points if point in requests or not (point.startswith(_ASKED) or point in facts.tasks)]


def _points(facts: MessageFacts) -> Points:
    """Points of the sections from the facts in the messages."""
    tasks = facts.tasks
    runs = facts.runs.values()
    points: Points = {
        GOAL: _first_and_last(GOAL, dict.fromkeys(facts.requests), lambda text: _short(text, 280)),
        CONSTRAINTS: _sentence_points(CONSTRAINTS, facts.demands, 240),
        DONE: [task for task, status in tasks.items() if status == "completed"],
        IN_PROGRESS: [task for task, status in tasks.items() if status == "in_progress"],
        BLOCKED: _first_and_last(BLOCKED, [run for run in runs if not run.ok], _failure),
        DECISIONS: _sentence_points(DECISIONS, facts.decisions, 300),
        NEXT: [task for task, status in tasks.items() if status == "pending"] or [_short(p, 240) for p in facts.plan],
        CRITICAL: _first_and_last(CRITICAL, facts.notes, lambda text: _short(text, 1200)),
    }
    if facts.requests:
        points[GOAL][0] = _short(facts.requests[0], 700)
    for path, count in facts.changes.items():
        points[DONE].append(f"changed `{path}`" + (f", {count} times" if count > 1 else ""))
    if facts.requests and not facts.is_answered:
        points[IN_PROGRESS].append(_ASKED + _short(facts.requests[-1], 400))
    fixed = [run for run in runs if run.ok and run.has_failed]
    points[CRITICAL] += _first_and_last(CRITICAL, fixed, lambda run: f"{_failure(run)} (works since)")
    points[CRITICAL] += [_ran(run) for run in [run for run in runs if run.is_command][-10:]]
    if facts.last_answer:
        points[CRITICAL].append(_ANSWERED + _short(facts.last_answer, 700))
    return points


def _first_and_last(name: str, found: Iterable[T], point: Callable[[T], str]) -> list[str]:
    """Points of the first and last items, with a count of those in the middle that would be dropped anyway."""
    listed = list(found)
    over = len(listed) - _FIRST - _MAX_POINTS[name]
    if over <= 0:
        return list(map(point, listed))
    return [*map(point, listed[:_FIRST]), _more(over), *map(point, listed[_FIRST + over :])]


def _sentence_points(name: str, found: Sentences, length: int) -> list[str]:
    points = _first_and_last(name, found.sentences, lambda text: _short(text, length))
    return points if found.is_all else [*points[:_FIRST], _more(0, is_all=False), *points[_FIRST:]]


def _more(count: int, *, is_all: bool = True) -> str:
    return f"({'' if is_all else 'at least '}{count} more {'is' if count == 1 else 'are'} not listed)"


def _turn(facts: MessageFacts) -> list[str]:
    """Points of the first part of a split turn."""
    points = [_ASKED + _short(text, 900) for text in facts.requests]
    points += _sentence_points(TURN, facts.decisions, 300)
    points += [f"{_DID}changed `{path}`" for path in facts.changes]
    points += [_failure(run) if not run.ok else _ran(run) for run in list(facts.runs.values())[-10:]]
    points += [f"To do: {task}" for task, status in facts.tasks.items() if status != "completed"]
    return [*points, _ANSWERED + _short(facts.last_answer, 700)] if facts.last_answer else points


def _quoted(name: str) -> str:
    return f"`{_short(name, 160)}`"


def _failure(run: Run) -> str:
    error = run.error
    return f"{_quoted(run.name)} failed: {_short(error, 360)}" if error else f"{_quoted(run.name)} failed"


def _ran(run: Run) -> str:
    outcome, last_line = "ok" if run.ok else "failed", run.last_line
    return f"Ran {_quoted(run.name)}: {outcome}" + (f", last line: {_short(last_line, 160)}" if last_line else "")


def _focus_points(messages: Sequence[Message], instructions: str) -> list[str]:
    """Sentences that contain words of the instructions, the newest last."""
    words = focus_words(instructions)
    found: dict[str, None] = {}
    for message in messages:
        if words and isinstance(message, User | Assistant):
            for sentence in sentences(message_text(message)):
                if any(word in sentence.lower() for word in words):
                    found.pop(_short(sentence, 300), None)
                    found[_short(sentence, 300)] = None
    return list(found)[-12:]


def _short(text: str, length: int) -> str:
    """A text on one line, truncated."""
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _indented(point: str) -> str:
    return "\n  ".join(point.splitlines())


def _fit(points: Points, limit: int) -> Points:
    """Drop points until each section and the summary as a whole are within their limits."""
    left_out: dict[str, int] = {}
    uncounted: set[str] = set()
    kept: Points = {}
    for name, listed in points.items():
        notes = [note for point in listed if (note := _MORE.match(point))]
        plain = [point for point in listed if not _MORE.match(point)]
        share = _MAX_POINTS[name]
        over = max(0, len(plain) - share)
        first = min(_FIRST, share)
        kept[name] = plain[:first] + plain[first + over :]
        left_out[name] = sum(int(note.group(2)) for note in notes) + over
        if any(note.group(1) for note in notes):
            uncounted.add(name)
    weights = {name: [measured_tokens(point) + 4 for point in listed] for name, listed in kept.items()}
    total = sum(map(sum, weights.values())) + 6 * len(kept)
    while total > limit:
        name = max(kept, key=lambda each: (sum(weights[each]) if len(kept[each]) > 1 else 0, each))
        if len(kept[name]) <= 1:
            return _shorten_points(kept, limit)
        at = _FIRST if len(kept[name]) > _FIRST else len(kept[name]) - 1
        total -= weights[name].pop(at)
        kept[name].pop(at)
        left_out[name] += 1
    for name, count in left_out.items():
        if count:
            at = min(_FIRST, len(kept[name]))
            kept[name].insert(at, _more(count, is_all=name not in uncounted))
    return kept


def _shorten_points(points: Points, limit: int) -> Points:
    """Shorten all points, when not even one per section fits."""
    length = 400
    while length > 8 and sum(measured_tokens(_short(p, length)) + 4 for each in points.values() for p in each) > limit:
        length //= 2
    return {name: [_short(point, length) for point in listed] for name, listed in points.items()}


def _truncate(text: str, limit: int) -> str:
    """Truncate a text to a number of tokens, if need be in the middle of a word."""
    while text and (tokens := measured_tokens(text)) > limit:
        text = text[: max(0, len(text) * limit // tokens - 1)] + "…" if limit > 1 else ""
    return text


__all__ = ["EXTRACTIVE", "HEADER", "MAX_TOKENS", "ExtractiveSummarizer"]
