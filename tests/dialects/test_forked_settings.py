"""Settings of a fork: copied from the session, except for approvals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree.conversion.fork import fork
from sessiontree.core.messages import message_text
from sessiontree.stores.file import FileStore


@pytest.mark.parametrize("dialect", ["native", "pi", "omp", "claude", "neovate"])
def test_a_fork_has_the_settings_of_its_origin_but_not_its_approvals(dialect: str, tmp_path: Path) -> None:
    session = sessiontree.create(tmp_path, home=tmp_path / "home")
    session.append("user", "look at [Pasted text #1 +12 lines]")
    session.append(role="assistant", content=[{"type": "text", "text": "Seen."}], provider="p", model="m")
    origin = fork(session, to=dialect, store=FileStore(tmp_path / f"{dialect}.jsonl")).session
    origin.set_config(approval_mode="yolo", approval_tools=("bash",), pasted_text_map={"#1": "a\nb"})
    last = origin.append("user", "and now?").id
    for target in ("native", dialect):
        forked = fork(origin, last, before=False, to=target, store=FileStore(tmp_path / f"to-{target}.jsonl")).session
        config = sessiontree.open(forked.location, dialect=target).config
        assert (config.approval_mode, config.approval_tools) == ("default", ())
        assert config.pasted_text_map == {"#1": "a\nb"}
        assert [message_text(one) for one in forked.context().messages][-1] == "and now?"
        os.remove(forked.location)
    assert sessiontree.open(origin.location, dialect=dialect).config.approval_mode == "yolo"


def test_no_file_of_a_fork_contains_the_approvals_of_its_origin(tmp_path: Path) -> None:
    """Neovate has its settings on one line, which every change rewrites; the old file is kept as a backup."""
    source = Path(__file__).parents[1] / "corpus/neovate/config_first.jsonl"
    (tmp_path / "origin.jsonl").write_bytes(source.read_bytes())
    folder = tmp_path / "forks"
    folder.mkdir()
    forked = fork(sessiontree.open(tmp_path / "origin.jsonl"), store=FileStore(folder / "fork.jsonl")).session
    assert [path.name for path in folder.iterdir()] == ["fork.jsonl"]
    assert b"yolo" not in (folder / "fork.jsonl").read_bytes()
    assert b"approvalTools" not in (folder / "fork.jsonl").read_bytes()
    assert forked.config.summary == "T"
