"""Compare benchmarks with another checkout, in turns: is a change slower?

    git worktree add ../before COMMIT && make -C ../before setup
    python -m benchmarks --against ../before

Both sides run in processes of their own, in turns, so that a slow minute of the machine affects both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parents[1]
LIMIT = 1.15


def compare(other: Path, names: Sequence[str], rounds: int, turns: int = 2, out: TextIO = sys.stdout) -> bool:
    """Print each figure before and now with their ratio, the best of `turns` on each side; False if one is worse."""
    holds = True
    for name in names:
        before: dict[str, float] = {}
        now: dict[str, float] = {}
        higher_is_better: set[str] = set()
        for _ in range(turns):
            for folder, best in ((other, before), (ROOT, now)):
                for row in _rows(folder, name, rounds):
                    if row.get("floor") is not None:
                        higher_is_better.add(row["name"])
                    choose = max if row["name"] in higher_is_better else min
                    best[row["name"]] = choose(best.get(row["name"], row["figure"]), row["figure"])
        if not before:
            print(f"{name} | not in {other}", file=out, flush=True)
        # Rows are paired by position: a row may have been renamed, but not moved.
        for (_, old), (title, new) in zip(before.items(), now.items(), strict=False):
            low, high = (new, old) if title in higher_is_better else (old, new)
            ratio = high / low if low else 1.0
            holds &= ratio <= LIMIT
            print(
                f"{title} | {old:.3g} | {new:.3g} | {ratio:.2f}x{'' if ratio <= LIMIT else ' WORSE'}",
                file=out,
                flush=True,
            )
    return holds


def _rows(folder: Path, name: str, rounds: int) -> list[dict[str, Any]]:
    """The figures of one benchmark in a checkout; none if it does not have that benchmark."""
    command = [str(folder / ".venv" / "bin" / "python"), "-m", "benchmarks", "--only", name, "--json"]
    done = subprocess.run(
        [*command, "--rounds", str(rounds)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    rows = json.loads(done.stdout) if done.stdout.strip() else []
    return [row for row in rows if row["type"] == "result"]
