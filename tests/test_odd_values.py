"""Valid JSON with unexpected values: every operation succeeds or raises one of our errors.

A line may be valid JSON and still have a list where a text is expected. Each round puts a few such values into a file
of the corpus and then runs typical operations: read, draw, examine, repair, convert, compact, export, append.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree import Session, SessionTreeError
from sessiontree.branches.list import list_branches
from sessiontree.branches.merge import merge
from sessiontree.compaction import compact
from sessiontree.export import export
from sessiontree.library.summary_reader import read_ends
from sessiontree.providers import render
from sessiontree.repair import examine, plan_repair
from sessiontree.stores.file import FileStore
from sessiontree.views.tree_drawing import draw_tree
from sessiontree.views.tree_rows import TreeRows

CORPUS = [path for path in sorted((Path(__file__).parent / "corpus").rglob("*.jsonl")) if path.stat().st_size < 60_000]
ODD = [
    "{}",
    "[]",
    "null",
    "5",
    "true",
    '"x"',
    '{"a":[1]}',
    "[[]]",
    "-1e300",
    '"\\ud800"',
    '[{"type":[]}]',
    '{"type":{}}',
]
TARGETS = ("claude", "pi", "omp", "neovate", "native")
ROUNDS = 40
DEEPEST = 6


@pytest.mark.parametrize("seed", range(10))
def test_unexpected_values_raise_only_our_own_errors(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    path = tmp_path / "odd.jsonl"
    for _ in range(ROUNDS):
        data = _with_odd_values(chance.choice(CORPUS).read_bytes(), chance)
        path.write_bytes(data)
        with contextlib.suppress(SessionTreeError):
            _use(sessiontree.open(path), path, chance)
        assert path.read_bytes() == data
        path.with_name("written.jsonl").write_bytes(data)
        with contextlib.suppress(SessionTreeError):
            _write_on(sessiontree.open(path.with_name("written.jsonl")))


def _use(session: Session, path: Path, chance: random.Random) -> None:
    messages = list(session.context().messages)
    assert session.problems is not None
    assert session.usage().requests >= 0
    list(examine(session))
    list(draw_tree(TreeRows(session, filter="all"), 80))
    list(draw_tree(TreeRows(session), 80))
    list_branches(session)
    read_ends(FileStore(path), session.dialect.name)
    for form in ("anthropic", "openai", "openai-chat"):
        render(messages, form)
    for use in (
        lambda: plan_repair(session),
        lambda: merge(session, chance.choice(list(session.ids)), dry_run=True) if session.ids else None,
        lambda: list(sessiontree.convert(session, chance.choice(TARGETS), branch="all").lines),
        lambda: compact(session, dry_run=True),
        lambda: list(export(session, chance.choice(("md", "html", "json", "text")), branch="all")),
    ):
        with contextlib.suppress(SessionTreeError):
            use()


def _write_on(session: Session) -> None:
    before = len(session.context().messages)
    session.append("user", "more")
    session.rename("a name")
    session.close()
    assert len(sessiontree.open(session.location).context().messages) > before - 1


def _with_odd_values(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(lines))
        try:
            record = json.loads(lines[at])
        except ValueError:
            continue  # the corpus has damaged lines of its own
        places = list(_places(record))
        if places:
            holder, key = chance.choice(places)
            holder[key] = json.loads(chance.choice(ODD))
            lines[at] = json.dumps(record).encode()
    return b"\n".join(lines)


def _places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """The positions of values that can be replaced: (container, key or index)."""
    if depth < DEEPEST and isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key], depth + 1)
