"""What someone asks for, as lanes: prompts, models and names for each, and limits for all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from sessiontree.errors import UsageError
from sessiontree.explore.records import Bounds
from sessiontree.models import Model

_RULER = re.compile(r"^-{3,}[ \t]*$", re.MULTILINE)
_LINE_END = re.compile(r"\r\n?")
"""Beside the line feed. What else counts as one in places may stand in the middle of a prompt."""
_BUDGET = re.compile(r"(?P<dollars>\$)?(?P<number>\d+(?:\.\d+)?)(?P<unit>k|M|s|m|min|h)?\Z", re.ASCII)
_TOKENS = {None: 1, "k": 1_000, "M": 1_000_000}
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600}
_ATTEMPT = (
    "\n\n(This is attempt {number} of {count}, made side by side, each without knowing of the others. Take a way of "
    "your own, not the most obvious one.)"
)


class LanePlans(Struct, frozen=True):
    """The lanes that are wanted: one prompt, model and name for each."""

    prompts: list[str]
    models: list[Model]
    names: list[str]


def plan_lanes(
    prompts: Sequence[str], names: Sequence[str], count: int | None, find_model: Callable[[str, int], Model]
) -> LanePlans:
    """A lane for each prompt, or for one prompt `count` lanes, or one for each model; models take turns.

    A model that is given the same prompt several times is told so, and to take a way of its own.
    """
    if count is not None and len(prompts) > 1:
        raise UsageError(f"there are {len(prompts)} prompts, which makes as many lanes; leave the number out")
    wanted = count if count is not None else len(prompts) if len(prompts) > 1 else len(names)
    if wanted < 1:
        raise UsageError(f"{wanted} lanes are none; say at least 1")
    if len(names) > wanted:
        lanes = f"{wanted} lane{'' if wanted == 1 else 's'}"
        step = f"say --n {len(names)}" if count is not None else "give a prompt to each"
        raise UsageError(
            f"{len(names)} models for {lanes}: {', '.join(names[wanted:])} would get none; {step}, or leave models out"
        )
    chosen = [(prompts[at % len(prompts)], names[at % len(names)]) for at in range(wanted)]
    repeated, seen = Counter(chosen), Counter[tuple[str, str]]()
    said = []
    for one in chosen:
        seen[one] += 1
        hint = _ATTEMPT.format(number=seen[one], count=repeated[one]) if repeated[one] > 1 else ""
        said.append(one[0] + hint)
    models = [find_model(name, number) for number, (_, name) in enumerate(chosen, 1)]
    return LanePlans(said, models, _names([name for _, name in chosen]))


def _names(models: Sequence[str]) -> list[str]:
    """Lanes are called by their models where that tells them apart."""
    short = [model.rpartition("/")[2].rpartition(":")[2] for model in models]
    is_telling = len(models) > 1 and len(set(short)) == len(short) and not any(name.isdecimal() for name in short)
    return short if is_telling else []


def parse_prompts(text: str) -> list[str]:
    """The prompts of a file: blocks between lines of three hyphens, or if there is none, one on each line."""
    lines = _LINE_END.sub("\n", text)
    parts = _RULER.split(lines) if _RULER.search(lines) else lines.split("\n")
    return [part.strip() for part in parts if part.strip()]


def parse_bounds(budgets: Sequence[str], lanes: int, depth: int) -> Bounds:
    """Limits out of `200k` or `1.5M` (tokens), `$2` (cost), `90s`, `10m` or `1h` (time)."""
    found: dict[str, float] = {}
    for text in budgets:
        match = _BUDGET.match(text.strip())
        unit = match["unit"] if match else None
        if match is None or float(match["number"]) <= 0 or (match["dollars"] and unit):
            raise UsageError(f"{text!r} is no budget: 200k or 1.5M (tokens), $2 (cost), 90s, 10m or 1h (time)")
        number = float(match["number"])
        if match["dollars"]:
            kind, value = "cost", number
        elif unit in _SECONDS:
            kind, value = "seconds", number * _SECONDS[unit]
        else:
            kind, value = "tokens", number * _TOKENS[unit]
        if kind in found:
            raise UsageError(f"there are two budgets of {kind}; say one")
        found[kind] = value
    if lanes < 1:
        raise UsageError(f"at most {lanes} lanes are none; say at least 1")
    if depth < 0:
        raise UsageError(f"{depth} is no depth; 0 means that nothing is forked")
    return Bounds(
        tokens=found.get("tokens"), cost=found.get("cost"), seconds=found.get("seconds"), lanes=lanes, depth=depth
    )
