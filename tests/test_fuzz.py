"""Random damage to the corpus: the reader never raises, never hangs, and never loses an undamaged line."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from sessiontree.sources.detect import detect
from tests.mutations import MUTATIONS, check_mutant

CORPUS = [path for path in sorted((Path(__file__).parent / "corpus").rglob("*.jsonl")) if path.stat().st_size]
ROUNDS = 6
SECONDS_PER_FILE = 20


@pytest.mark.parametrize("path", [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in CORPUS])
def test_random_damage_never_loses_an_undamaged_line(path: Path) -> None:
    original = path.read_bytes()
    dialect = detect(original[: 64 * 1024], str(path))
    chance = random.Random(path.stem)
    deadline = time.monotonic() + SECONDS_PER_FILE
    for _ in range(ROUNDS):
        for mutate in MUTATIONS:
            check_mutant(dialect, original, mutate(original, chance))
    assert time.monotonic() < deadline
