"""A summary without a model: points taken from the entries themselves, in the same sections as any other summary.

The same messages always give the same text. An earlier summary is taken apart into its points and these are carried
on, so that after many compactions a point still reads as it was written, instead of being a summary of a summary. The
length is bounded: where a section has too many points, older ones make room, and a line says how many are not listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sessiontree.compacting.estimate import measured_tokens
from sessiontree.compacting.noticing import Noticed, Run, focus_words, notice, sentences
from sessiontree.compacting.sections import (
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
from sessiontree.compacting.summarizers import Request, Summary
from sessiontree.messages import Assistant, Message, User, message_text

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

_MORE = re.compile(r"\((\d+) more (?:is|are) not listed\)\Z")
_ASKED, _DID, _ANSWERED = "Asked: ", "Did: ", "Said last: "
Points = dict[str, list[str]]


class ExtractiveSummarizer:
    """Writes summaries out of what the entries show."""

    name = "extractive"

    def __call__(self, request: Request, /) -> Summary:
        noticed = notice(request.messages, request.agent)
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
    succeeded = {_quoted(run.what) for run in noticed.runs.values() if run.ok}
    merged: Points = {}
    for name in _SHARES:
        before = earlier.get(name, [])
        if name == BLOCKED:
            again = {_quoted(run.what) for run in noticed.runs.values()}
            before = [point for point in before if not point.startswith(tuple(again))]
            settled = [point for point in earlier.get(name, []) if point.startswith(tuple(succeeded))]
            fresh[CRITICAL] = [f"{point} (works since)" for point in settled] + fresh[CRITICAL]
        elif name in (IN_PROGRESS, NEXT):
            before = _still_open(before, noticed)
        elif name == CRITICAL:
            before = [point for point in before if not point.startswith((_ANSWERED, "Ran "))]
        merged[name] = list(dict.fromkeys([*before, *fresh.get(name, [])]))
    return merged


def _still_open(points: Sequence[str], noticed: Noticed) -> list[str]:
    """What was open before and has not been settled since."""
    requests = [point for point in points if point.startswith(_ASKED) and not noticed.answers_earlier]
    if noticed.lists_tasks or noticed.plan:
        return requests
    return [point for point in points if point in requests or not (point.startswith(_ASKED) or point in noticed.tasks)]


def _points(noticed: Noticed) -> Points:
    """What was noticed, as points of sections."""
    tasks = noticed.tasks
    failed = [run for run in noticed.runs.values() if not run.ok]
    mended = [run for run in noticed.runs.values() if run.ok and run.error]
    points: Points = {
        GOAL: [_short(text, 700 if at == 0 else 280) for at, text in enumerate(noticed.requests)],
        CONSTRAINTS: [_short(text, 240) for text in noticed.demands],
        DONE: [task for task, status in tasks.items() if status == "completed"],
        IN_PROGRESS: [task for task, status in tasks.items() if status == "in_progress"],
        BLOCKED: [_failure(run) for run in failed],
        DECISIONS: [_short(text, 300) for text in noticed.decisions],
        NEXT: [task for task, status in tasks.items() if status == "pending"] or [_short(p, 240) for p in noticed.plan],
        CRITICAL: [_short(text, 1200) for text in noticed.notes],
    }
    for path, count in noticed.changes.items():
        points[DONE].append(f"changed `{path}`" + (f", {count} times" if count > 1 else ""))
    if noticed.requests and not noticed.is_answered:
        points[IN_PROGRESS].append(_ASKED + _short(noticed.requests[-1], 400))
    points[CRITICAL] += [f"{_failure(run)} (works since)" for run in mended]
    points[CRITICAL] += [_ran(run) for run in noticed.runs.values() if run.is_command][-10:]
    if noticed.last_answer:
        points[CRITICAL].append(_ANSWERED + _short(noticed.last_answer, 700))
    return points


def _turn(noticed: Noticed) -> list[str]:
    """The beginning of a turn that is cut."""
    points = [_ASKED + _short(text, 900) for text in noticed.requests]
    points += [_short(text, 300) for text in noticed.decisions]
    points += [f"{_DID}changed `{path}`" for path in noticed.changes]
    points += [_failure(run) if not run.ok else _ran(run) for run in noticed.runs.values()][-10:]
    points += [f"To do: {task}" for task, status in noticed.tasks.items() if status != "completed"]
    return [*points, _ANSWERED + _short(noticed.last_answer, 700)] if noticed.last_answer else points


def _quoted(what: str) -> str:
    return f"`{_short(what, 160)}`"


def _failure(run: Run) -> str:
    return f"{_quoted(run.what)} failed: {_short(run.error, 360)}" if run.error else f"{_quoted(run.what)} failed"


def _ran(run: Run) -> str:
    outcome = "ok" if run.ok else "failed"
    return f"Ran {_quoted(run.what)}: {outcome}" + (
        f", last line: {_short(run.last_line, 160)}" if run.last_line else ""
    )


def _focused(messages: Iterable[Message], instructions: str) -> list[str]:
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
    kept: Points = {}
    for name, listed in points.items():
        counts = [int(found.group(1)) for point in listed if (found := _MORE.match(point))]
        plain = [point for point in listed if not _MORE.match(point)]
        share = _SHARES[name]
        over = max(0, len(plain) - share)
        first = min(_FIRST, share)
        kept[name] = plain[:first] + plain[first + over :]
        left_out[name] = sum(counts) + over
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
            kept[name].insert(place, f"({count} more {'is' if count == 1 else 'are'} not listed)")
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
