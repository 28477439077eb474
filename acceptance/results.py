"""Outcomes of the cases: a table for people, JSON for programs, and the exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acceptance.cases import Outcome
from acceptance.programs import Name

NOT_RUN = "could not run"

Missing = Mapping[Name, str | None]
"""Program -> why it could not be installed, or None."""


def exit_code(outcomes: Sequence[Outcome], missing: Missing) -> int:
    if all(missing.values()):
        return 3
    return 1 if any(outcome.status == "differs" for outcome in outcomes) else 0


def render_table(outcomes: Sequence[Outcome], missing: Missing) -> str:
    """One row per session, one column per program; details of failures below."""
    names = list(missing)
    cells: dict[str, dict[str, str]] = {}
    for outcome in outcomes:
        cells.setdefault(outcome.case.row, {})[outcome.case.program] = outcome.status
    rows = [
        [source, *(NOT_RUN if missing[name] else found.get(name, "") for name in names)]
        for source, found in cells.items()
    ]
    titled = [["session", *names], *rows]
    widths = [max(map(len, column)) for column in zip(*titled, strict=True)]
    ruled = [titled[0], ["-" * width for width in widths], *rows]
    table = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in ruled]
    return "\n".join([*table, *_details(outcomes), "", _summary(outcomes, missing)])


def render_generated(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """Details of the generated sessions that differ, and a line for each program."""
    lines: list[str] = []
    for name, tried in outcomes.items():
        lines += _details([outcome for outcome in tried if outcome.status == "differs"])
        lines.append(f"{name}, {len(tried)} generated sessions: {_counts(tried)}")
    return "\n".join(lines)


def describe(
    outcomes: Sequence[Outcome], missing: Missing, generated: Mapping[str, Sequence[Outcome]]
) -> dict[str, Any]:
    """The outcomes as JSON values. `generated` are those of generated sessions, by program."""
    return {
        "couldNotRun": {name: reason for name, reason in missing.items() if reason},
        "cases": [_describe(outcome) for outcome in outcomes],
        "generated": {name: [_describe(outcome) for outcome in tried] for name, tried in generated.items()},
    }


def _describe(outcome: Outcome) -> dict[str, Any]:
    return {
        "dialect": outcome.case.source.dialect,
        "session": outcome.case.source.path.stem,
        "program": outcome.case.program,
        "converted": not outcome.case.is_original,
        "branch": outcome.case.branch,
        "status": outcome.status,
        "reason": outcome.reason,
        "difference": outcome.difference,
    }


def _details(outcomes: Sequence[Outcome]) -> list[str]:
    lines: list[str] = []
    for outcome in outcomes:
        if outcome.status != "ok":
            reason = f": {outcome.reason}" if outcome.reason else ""
            lines += ["", f"{outcome.case.row} in {outcome.case.program}, {outcome.status}{reason}"]
            lines += [f"    {line}" for line in outcome.difference]
    return lines


def _summary(outcomes: Sequence[Outcome], missing: Missing) -> str:
    lines = [_counts(outcomes)] if outcomes else []
    lines += [f"{name} could not be run: {reason}" for name, reason in missing.items() if reason]
    return "\n".join(lines)


def _counts(outcomes: Sequence[Outcome]) -> str:
    statuses = [outcome.status for outcome in outcomes]
    counts = [f"{statuses.count(status)} {status}" for status in ("ok", "differs", "known") if status in statuses]
    return ", ".join(counts) or "nothing was run"
