"""Sessions whose lines count milliseconds instead of writing ISO times, in every dialect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.library.library import Library
from sessiontree.library.summary_reader import read_ends
from sessiontree.search.engine import search
from sessiontree.stores.file import FileStore

ID = "0a000000-0000-4000-8000-00000a000000"
START = 1767225600000  # 2026-01-01T00:00:00.000Z
FIRST, SECOND = "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z"


def claude_line(id: str, parent: str | None, role: str, text: str, time: int) -> dict[str, Any]:
    message = {"role": role, "content": text, **({"id": "r1", "model": "m"} if role == "assistant" else {})}
    own = {"uuid": id, "parentUuid": parent, "sessionId": ID, "cwd": "/p", "version": "2.1.0"}
    return {"type": role, **own, "timestamp": time, "message": message}


def neovate_line(id: str, parent: str | None, role: str, text: str, time: int) -> dict[str, Any]:
    own = {"uuid": id, "parentUuid": parent, "sessionId": ID}
    return {"type": "message", **own, "role": role, "content": text, "timestamp": time}


def pi_line(id: str, parent: str | None, role: str, text: str, time: int) -> dict[str, Any]:
    message = {"role": role, "content": [{"type": "text", "text": text}]}
    return {"type": "message", "id": id, "parentId": parent, "timestamp": time, "message": message}


HEADER = {"type": "session", "version": 3, "id": ID, "timestamp": START, "cwd": "/p"}
FILES: dict[str, list[dict[str, Any]]] = {
    dialect: [
        *header,
        line("aaaaaaaa", None, "user", "remember pineapples", START),
        line("bbbbbbbb", "aaaaaaaa", "assistant", "two", START + 1000),
    ]
    for dialect, header, line in [
        ("claude", [], claude_line),
        ("neovate", [], neovate_line),
        ("pi", [HEADER], pi_line),
        ("omp", [HEADER], pi_line),
        ("native", [HEADER], pi_line),
    ]
}


@pytest.fixture
def path(dialect: str, tmp_path: Path) -> Path:
    path = tmp_path / f"{ID}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in FILES[dialect]))
    return path


@pytest.mark.parametrize("dialect", FILES)
def test_numeric_times_are_read(path: Path, dialect: str) -> None:
    with sessiontree.open(str(path), dialect=dialect) as session:
        assert session.header.timestamp == FIRST
        assert [entry.timestamp for entry in session.path()] == [FIRST, SECOND]
        assert session.last_activity == SECOND
        nodes = [session.journal.tree.node_of["aaaaaaaa"]]
        assert [entry.timestamp for entry in session.dialect.decode(session.journal, nodes)] == [FIRST]


@pytest.mark.parametrize("dialect", FILES)
def test_lists_show_numeric_times(path: Path, dialect: str) -> None:
    summary = read_ends(FileStore(str(path)), dialect).summary
    assert (summary.created, summary.active, summary.dated) == (START, START + 1000, True)


@pytest.mark.parametrize("dialect", FILES)
def test_a_line_with_a_numeric_time_is_found_by_search(path: Path, dialect: str, tmp_path: Path) -> None:
    folder = tmp_path / "root" / "project"
    folder.mkdir(parents=True)
    path.rename(folder / path.name)
    roots = {dialect: [str(folder.parent)]}
    environment = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with Library(str(tmp_path / "home"), roots, environment) as library:
        found = list(search(library, "pineapples"))
    assert {(hit.kind, hit.time) for hit in found} >= {("prompt", START)}
