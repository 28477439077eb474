"""Parse the options of an exploration: prompts, models and names of its lanes, and limits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from sessiontree.core.durations import parse_duration
from sessiontree.errors import UsageError
from sessiontree.explore.records import Bounds
from sessiontree.models import Model

_RULER = re.compile(r"^-{3,}[ \t]*$", re.MULTILINE)
# Not str.splitlines(): a form feed or a Unicode line separator may be part of a prompt.
_LINE_END = re.compile(r"\r\n?")
_BUDGET = re.compile(r"(?P<dollars>\$)?(?P<number>\d+(?:\.\d+)?)(?P<unit>k|M)?\Z", re.ASCII)
_TOKENS = {None: 1, "k": 1_000, "M": 1_000_000}
_ATTEMPT = (
    "\n\n(This is attempt {number} of {count}, made in parallel, each without knowing the others. Choose your own "
    "approach, not the most obvious one.)"
)


class LanePlans(Struct, frozen=True):
    """A prompt, a model and a name for each lane."""

    prompts: list[str]
    models: list[Model]
    names: list[str]


def plan_lanes(
    prompts: Sequence[str], names: Sequence[str], count: int | None, find_model: Callable[[str, int], Model]
) -> LanePlans:
    """A lane for each prompt; for a single prompt, `count` lanes or one for each model. Models take turns.

    A model that gets the same prompt several times is asked to choose its own approach.
    """
    if count is not None and len(prompts) > 1:
        raise UsageError(f"{len(prompts)} prompts make as many lanes; leave the number out")
    wanted = count if count is not None else len(prompts) if len(prompts) > 1 else len(names)
    if wanted < 1:
        raise UsageError(f"{wanted} lanes requested; at least 1 is needed")
    if len(names) > wanted:
        lanes = f"{wanted} lane{'' if wanted == 1 else 's'}"
        step = f"use --n {len(names)}" if count is not None else "give each a prompt"
        raise UsageError(
            f"{len(names)} models for {lanes}: {', '.join(names[wanted:])} would be unused; {step}, or use fewer models"
        )
    chosen = [(prompts[at % len(prompts)], names[at % len(names)]) for at in range(wanted)]
    repeated, seen = Counter(chosen), Counter[tuple[str, str]]()
    texts = []
    for pair in chosen:
        seen[pair] += 1
        hint = _ATTEMPT.format(number=seen[pair], count=repeated[pair]) if repeated[pair] > 1 else ""
        texts.append(pair[0] + hint)
    models = [find_model(name, number) for number, (_, name) in enumerate(chosen, 1)]
    return LanePlans(texts, models, _lane_names([name for _, name in chosen]))


def _lane_names(models: Sequence[str]) -> list[str]:
    """Lanes are named after their models if those are distinct."""
    short = [model.rpartition("/")[2].rpartition(":")[2] for model in models]
    is_distinct = len(models) > 1 and len(set(short)) == len(short) and not any(name.isdecimal() for name in short)
    return short if is_distinct else []


def parse_prompts(text: str) -> list[str]:
    """Parse a prompts file: blocks separated by lines of three hyphens, or without those, one prompt per line."""
    lines = _LINE_END.sub("\n", text)
    parts = _RULER.split(lines) if _RULER.search(lines) else lines.split("\n")
    return [part.strip() for part in parts if part.strip()]


def parse_bounds(budgets: Sequence[str], lanes: int, depth: int) -> Bounds:
    """Parse limits such as `200k` or `1.5M` (tokens), `$2` (cost), `90s`, `10m` or `1h` (time)."""
    found: dict[str, float] = {}
    for text in budgets:
        match, time = _BUDGET.match(text.strip()), parse_duration(text)
        if time is not None:
            kind, value = "seconds", time.seconds
        elif match is None or (match["dollars"] and match["unit"]):
            kind, value = "", 0.0
        elif match["dollars"]:
            kind, value = "cost", float(match["number"])
        else:
            kind, value = "tokens", float(match["number"]) * _TOKENS[match["unit"]]
        if value <= 0:
            raise UsageError(f"invalid budget {text!r}; use 200k or 1.5M (tokens), $2 (cost), 90s, 10m or 1h (time)")
        if kind in found:
            raise UsageError(f"two budgets of {kind}; give one")
        found[kind] = value
    if lanes < 1:
        raise UsageError(f"at most {lanes} lanes; at least 1 is needed")
    if depth < 0:
        raise UsageError(f"invalid depth {depth}; 0 means no forks")
    return Bounds(
        tokens=found.get("tokens"), cost=found.get("cost"), seconds=found.get("seconds"), lanes=lanes, depth=depth
    )
