"""Files of the real clients are rewritten in every way, and restored byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sessiontree
from sessiontree.archive.archive_home import session_info
from sessiontree.archive.move import move, plan_move
from sessiontree.archive.prune_branch import plan_prune, prune
from sessiontree.archive.restore import restore
from sessiontree.archive.shrink import shrink
from sessiontree.errors import SessionTreeError
from tests.archive.machine import home_of

CORPUS = [path for path in sorted((Path(__file__).parents[1] / "corpus").glob("*/*.jsonl")) if path.stat().st_size]
ROOTS = {
    "claude": ".claude/projects/-work-a",
    "neovate": ".neovate/projects/work-a",
    "pi": ".pi/agent/sessions/--work-a--",
    "omp": ".omp/agent/sessions/-work-a",
}


@pytest.mark.parametrize("source", CORPUS, ids=[f"{path.parent.name}-{path.stem}" for path in CORPUS])
def test_a_real_session_is_the_same_after_everything_was_undone(tmp_path: Path, source: Path) -> None:
    try:
        dialect = sessiontree.open(source).dialect.name
    except SessionTreeError:
        return  # not a session, so no command would touch it
    path = tmp_path / "user" / ROOTS[dialect] / source.name
    path.parent.mkdir(parents=True)
    shutil.copyfile(source, path)
    data, home = path.read_bytes(), home_of(tmp_path)
    messages = sessiontree.open(path).context().messages

    def check_and_undo() -> None:
        (found,) = (tmp_path / "user").rglob("*.jsonl")
        assert sessiontree.open(found).context().messages == messages
        for item in reversed(home.archive.items()):
            restore(home.archive, item)
        assert path.read_bytes() == data

    session = sessiontree.open(path)
    for leaf in session.leaves():
        try:
            prune(home.archive, session, plan_prune(session, leaf))
        except SessionTreeError:
            continue  # rejected: the current branch, or other lines would change
        check_and_undo()
        session = sessiontree.open(path)
    for dead in (False, True):
        try:
            shrink(home.archive, sessiontree.open(path), dead_branches=dead)
        except SessionTreeError:
            assert path.read_bytes() == data
        check_and_undo()
    session = sessiontree.open(path)
    move(home.archive, session, plan_move(session, "/work/b", home.allowed_paths, home.environment))
    check_and_undo()
    home.archive.archive(session_info(sessiontree.open(path)))
    assert not path.exists()
    restore(home.archive, home.archive.items()[-1])
    assert path.read_bytes() == data
    assert [found.name for found in path.parent.iterdir()] == [source.name]
