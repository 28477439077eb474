"""A summary without a model: points taken from the entries themselves, in the same sections as any other summary.

The same messages always give the same text. An earlier summary is taken apart into its points and these are carried
on, so that after many compactions a point still reads as it was written, instead of being a summary of a summary. The
length is bounded: where a section has too many points, older ones make room, and a line says how many are not listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sessiontree.compaction.message_facts import Heard, Noticed, Run, focus_words, notice, sentences
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

HEADER = (
    "(These notes were put together by rules out of the session's own entries. No model wrote them; what ends in … was "
    "shortened.)"
)

LONGEST = 4_000
"""Tokens of a summary, whatever a request allows."""

_SHARES = {
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
"""How many points a section has at most."""

_FIRST = 2
"""Points at the beginning of a section that never make room: what it all began with."""

_COUNTED = 400
"""Demands, and decisions, that are looked for: where there are more, those in the middle are not even counted."""

_MORE = re.compile(r"\((at least )?(\d+) more (?:is|are) not listed\)\Z")
_ASKED, _DID, _ANSWERED = "Asked: ", "Did: ", "Said last: "
Points = dict[str, list[str]]
T = TypeVar("T")


class ExtractiveSummarizer:
    """Writes summaries out of what the entries show."""

    name = "extractive"

    def __call__(self, request: Request, /) -> Summary:
        noticed = notice(request.messages, request.agent, _COUNTED)
        if request.kind == "turn":
            points: Points = {TURN: _turn(noticed)}
            fitted = _fitted(points, min(request.max_tokens, LONGEST // 2))
            return Summary("\n".join(f"- {_hanging(point)}" for point in fitted[TURN]) or "- (nothing was said)")
        earlier = _earlier(request.previous)
        points = _merged(earlier, noticed)
        if request.instructions:
            points[CRITICAL] += _focused(request.messages, request.instructions)
        limit = min(request.max_tokens, LONGEST)
        text = render_sections(_fitted(points, limit - measured_tokens(HEADER)))
        return Summary(f"{HEADER}\n\n{_cut_to(text, limit - measured_tokens(HEADER))}")


EXTRACTIVE = ExtractiveSummarizer()


def _earlier(previous: str | None) -> Points:
    """The points of an earlier summary, those of a turn that was cut among the others."""
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


def _merged(earlier: Points, noticed: Noticed) -> Points:
    fresh = _points(noticed)
    merged: Points = {}
    for name in _SHARES:
        before = earlier.get(name, [])
        if name == BLOCKED and before:
            again = {_quoted(run.what) for run in noticed.runs.values()}
            succeeded = {_quoted(run.what) for run in noticed.runs.values() if run.ok}
            before = [point for point in before if not point.startswith(tuple(again))]
            settled = [point for point in earlier.get(name, []) if point.startswith(tuple(succeeded))]
            fresh[CRITICAL] = [f"{point} (works since)" for point in settled] + fresh[CRITICAL]
        elif name in (IN_PROGRESS, NEXT):
            before = _still_open(before, noticed)
        elif name == CRITICAL:
            before = [point for point in before if not point.startswith((_ANSWERED, "Ran "))]
        merged[name] = _distinct([*before, *fresh.get(name, [])])
    return merged


def _distinct(points: Sequence[str]) -> list[str]:
    """Every point once; but two notes that points are left out are two, though they read the same."""
    notes = [point for point in points if _MORE.match(point)]
    return [*notes, *dict.fromkeys(point for point in points if not _MORE.match(point))]


def _still_open(points: Sequence[str], noticed: Noticed) -> list[str]:
    """What was open before and has not been settled since."""
    requests = [point for point in points if point.startswith(_ASKED) and not noticed.answers_earlier]
    if noticed.lists_tasks or noticed.plan:
        return requests
    return [point for point in points if point in requests or not (point.startswith(_ASKED) or point in noticed.tasks)]


def _points(noticed: Noticed) -> Points:
    """What was noticed, as points of sections."""
    tasks = noticed.tasks
    runs = noticed.runs.values()
    points: Points = {
        GOAL: _ends(GOAL, dict.fromkeys(noticed.requests), lambda text: _short(text, 280)),
        CONSTRAINTS: _sentences(CONSTRAINTS, noticed.demands, 240),
        DONE: [task for task, status in tasks.items() if status == "completed"],
        IN_PROGRESS: [task for task, status in tasks.items() if status == "in_progress"],
        BLOCKED: _ends(BLOCKED, [run for run in runs if not run.ok], _failure),
        DECISIONS: _sentences(DECISIONS, noticed.decisions, 300),
        NEXT: [task for task, status in tasks.items() if status == "pending"] or [_short(p, 240) for p in noticed.plan],
        CRITICAL: _ends(CRITICAL, noticed.notes, lambda text: _short(text, 1200)),
    }
    if noticed.requests:
        points[GOAL][0] = _short(noticed.requests[0], 700)
    for path, count in noticed.changes.items():
        points[DONE].append(f"changed `{path}`" + (f", {count} times" if count > 1 else ""))
    if noticed.requests and not noticed.is_answered:
        points[IN_PROGRESS].append(_ASKED + _short(noticed.requests[-1], 400))
    mended = [run for run in runs if run.ok and run.has_failed]
    points[CRITICAL] += _ends(CRITICAL, mended, lambda run: f"{_failure(run)} (works since)")
    points[CRITICAL] += [_ran(run) for run in [run for run in runs if run.is_command][-10:]]
    if noticed.last_answer:
        points[CRITICAL].append(_ANSWERED + _short(noticed.last_answer, 700))
    return points


def _ends(name: str, found: Iterable[T], point: Callable[[T], str]) -> list[str]:
    """Points for what was found; only a count of those in the middle that a section has no room for anyway."""
    listed = list(found)
    over = len(listed) - _FIRST - _SHARES[name]
    if over <= 0:
        return list(map(point, listed))
    return [*map(point, listed[:_FIRST]), _more(over), *map(point, listed[_FIRST + over :])]


def _sentences(name: str, heard: Heard, length: int) -> list[str]:
    points = _ends(name, heard.sentences, lambda text: _short(text, length))
    return points if heard.is_all else [*points[:_FIRST], _more(0, is_all=False), *points[_FIRST:]]


def _more(count: int, *, is_all: bool = True) -> str:
    return f"({'' if is_all else 'at least '}{count} more {'is' if count == 1 else 'are'} not listed)"


def _turn(noticed: Noticed) -> list[str]:
    """The beginning of a turn that is cut."""
    points = [_ASKED + _short(text, 900) for text in noticed.requests]
    points += _sentences(TURN, noticed.decisions, 300)
    points += [f"{_DID}changed `{path}`" for path in noticed.changes]
    points += [_failure(run) if not run.ok else _ran(run) for run in list(noticed.runs.values())[-10:]]
    points += [f"To do: {task}" for task, status in noticed.tasks.items() if status != "completed"]
    return [*points, _ANSWERED + _short(noticed.last_answer, 700)] if noticed.last_answer else points


def _quoted(what: str) -> str:
    return f"`{_short(what, 160)}`"


def _failure(run: Run) -> str:
    error = run.error
    return f"{_quoted(run.what)} failed: {_short(error, 360)}" if error else f"{_quoted(run.what)} failed"


def _ran(run: Run) -> str:
    outcome, last_line = "ok" if run.ok else "failed", run.last_line
    return f"Ran {_quoted(run.what)}: {outcome}" + (f", last line: {_short(last_line, 160)}" if last_line else "")


def _focused(messages: Sequence[Message], instructions: str) -> list[str]:
    """What was said with the words of the instructions in it, the newest last."""
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
    """A text on one line, cut to a length."""
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _hanging(point: str) -> str:
    return "\n  ".join(point.splitlines())


def _fitted(points: Points, limit: int) -> Points:
    """The points with no more in any section than it may have, and no more than a number of tokens in all."""
    left_out: dict[str, int] = {}
    uncounted: set[str] = set()
    kept: Points = {}
    for name, listed in points.items():
        notes = [note for point in listed if (note := _MORE.match(point))]
        plain = [point for point in listed if not _MORE.match(point)]
        share = _SHARES[name]
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
            return _squeezed(kept, limit)
        at = _FIRST if len(kept[name]) > _FIRST else len(kept[name]) - 1
        total -= weights[name].pop(at)
        kept[name].pop(at)
        left_out[name] += 1
    for name, count in left_out.items():
        if count:
            place = min(_FIRST, len(kept[name]))
            kept[name].insert(place, _more(count, is_all=name not in uncounted))
    return kept


def _squeezed(points: Points, limit: int) -> Points:
    """The points with their texts cut, when not even one for each section fits as it is."""
    length = 400
    while length > 8 and sum(measured_tokens(_short(p, length)) + 4 for each in points.values() for p in each) > limit:
        length //= 2
    return {name: [_short(point, length) for point in listed] for name, listed in points.items()}


def _cut_to(text: str, limit: int) -> str:
    """A text with no more than a number of tokens, be it in the middle of a word."""
    while text and (tokens := measured_tokens(text)) > limit:
        text = text[: max(0, len(text) * limit // tokens - 1)] + "…" if limit > 1 else ""
    return text


__all__ = ["EXTRACTIVE", "HEADER", "LONGEST", "ExtractiveSummarizer"]
