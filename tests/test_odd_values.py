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
from sessiontree.conversion.convert import convert
from sessiontree.core.messages import message_text
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
    "-" + "9" * 400,
    "9" * 400,
]
TARGETS = ("claude", "pi", "omp", "neovate", "native", "codex", "qwen", "gemini", "opencode")
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
    session.append("user", "more")
    session.rename("a name")
    session.close()
    # A client may no longer send what comes before a prompt: an answer with a call that has no result, for example.
    assert message_text(sessiontree.open(session.location).context().messages[-1]) == "more"


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


CLIENT_LINE = {"uuid": "a", "parentUuid": None, "sessionId": "s", "cwd": "/", "timestamp": "2026-01-01T00:00:00.000Z"}
NATIVE_HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/"}


def _session_of(tmp_path: Path, *lines: dict[str, Any]) -> Session:
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return sessiontree.open(path)


@pytest.mark.parametrize("call", [{"id": "toolu_1"}, {"name": "Read"}, {"id": ["toolu_1"], "name": {}}, {}])
@pytest.mark.parametrize("target", TARGETS)
def test_a_call_without_an_id_or_a_name_is_converted(tmp_path: Path, call: dict[str, Any], target: str) -> None:
    message = {"id": "msg_1", "role": "assistant", "content": [{"type": "tool_use", **call, "input": {}}]}
    session = _session_of(tmp_path, {**CLIENT_LINE, "type": "assistant", "message": message})
    assert convert(session, target).lines


@pytest.mark.parametrize("kind", [[], {}, 5, None])
@pytest.mark.parametrize("target", TARGETS)
def test_a_block_whose_type_is_not_a_text_is_converted(tmp_path: Path, kind: object, target: str) -> None:
    content = [{"type": kind}, {"type": "text", "text": "yes"}]
    entry = {"type": "message", "id": "a", "parentId": None, "timestamp": "2026-01-01T00:00:00.000Z"}
    session = _session_of(tmp_path, NATIVE_HEADER, {**entry, "message": {"role": "assistant", "content": content}})
    assert convert(session, target).lines


@pytest.mark.parametrize("tokens", [-(10**400), 10**400, -1e308, 1e308])
def test_usage_of_any_size_is_counted(tmp_path: Path, tokens: float) -> None:
    entry = {"type": "message", "id": "a", "parentId": None, "timestamp": "2026-01-01T00:00:00.000Z"}
    message = {"role": "assistant", "content": [], "usage": {"input": tokens, "output": 5}}
    session = _session_of(tmp_path, NATIVE_HEADER, {**entry, "message": message})
    assert session.usage().output == 5
