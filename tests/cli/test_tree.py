"""`sessiontree tree`: filters, folds, the part around an entry, colors, the legend and the pager."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sessiontree
from tests.cli.conftest import Run

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from sample_library import flaky_login, long_migration


@pytest.fixture
def login(tmp_path: Path) -> str:
    """The session of the sample library with two branches, as a file."""
    return _write(tmp_path, flaky_login)


def _write(folder: Path, build: object) -> str:
    from datetime import UTC, datetime

    assert callable(build)
    path = folder / "session.jsonl"
    path.write_bytes(b"".join(build("/projects/shop", datetime(2026, 2, 16, tzinfo=UTC)).lines()))
    return str(path)


def in_terminal(*arguments: str, environment: dict[str, str]) -> str:
    """The output of a command whose input and output are a terminal of 100 columns and 24 rows."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sessiontree", *arguments]
    variables = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "24", **environment}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables) as running:
        os.close(theirs)
        output = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how Linux signals that the other side has closed
                break
            if not piece:
                break
            output += piece
        running.wait(60)
    os.close(ours)
    return output.decode().replace("\r\n", "\n")


def test_filters_choose_the_entries(run: Run, login: str) -> None:
    everything = run("tree", login, "--filter", "all").lines
    assert run("tree", login, "--all").lines == everything
    shown = run("tree", login).lines
    assert len(shown) == 16 < len(everything)
    assert len(run("tree", login, "--filter", "user").lines) == 3
    assert not any("result" in row for row in run("tree", login, "--filter", "no-tools").lines)
    (labeled,) = run("tree", login, "--filter", "labeled").lines
    assert "[root cause]" in labeled


def test_calls_show_their_targets_and_fold_into_one_row(run: Run, login: str) -> None:
    assert "→ bash pytest -q tests/test_login.py --count 200" in run("tree", login).out
    folded = run("tree", login, "--fold").lines
    assert any("▸ 2 calls · edit, bash" in row for row in folded)
    assert len(folded) < 16


def test_what_a_compaction_replaced_is_folded_into_it(run: Run, tmp_path: Path) -> None:
    path = _write(tmp_path, long_migration)
    assert "We outgrew Redis" in run("tree", path).out
    folded = run("tree", path, "--fold").out
    assert "We outgrew Redis" not in folded
    assert "▸ 3 entries replaced · Goal: move" in folded


def test_only_the_rows_around_an_entry_are_drawn(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with sessiontree.create(path=path, cwd="/") as session:
        ids = [session.append("user", f"prompt {number}").id for number in range(100)]
    rows = run("tree", str(path), "--around", ids[50]).lines
    assert len(rows) == 23
    assert rows[0] == "⋮ 40 rows before"
    assert "prompt 40" in rows[1]
    assert "prompt 60" in rows[-2]
    assert rows[-1] == "⋮ 39 rows after"
    assert run("tree", str(path), "--around", "nothing").code == 1


def test_a_terminal_gets_colors_and_a_legend_and_no_color_turns_colors_off(login: str, tmp_path: Path) -> None:
    around = {"HOME": str(tmp_path), "PAGER": "cat"}
    colored = in_terminal("tree", login, environment=around)
    assert "\x1b[38;5;6m●" in colored
    assert "◀ here current entry" in colored
    plain = in_terminal("tree", login, environment={**around, "NO_COLOR": "1"})
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain


def test_a_tree_longer_than_the_terminal_opens_in_the_pager(login: str, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\ncat\n")
    pager.chmod(0o755)
    around = {"HOME": str(tmp_path), "PAGER": str(pager)}
    assert "PAGED" not in in_terminal("tree", login, environment=around)
    assert "PAGED" in in_terminal("tree", login, environment={**around, "LINES": "10"})


def test_without_textual_the_list_is_printed_with_one_line_on_how_to_get_the_screens(tmp_path: Path) -> None:
    """A module of that name that cannot be found stands for an installation without the extra."""
    hidden = tmp_path / "site"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'textual' else find(name, package)\n"
    )
    around = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(hidden)}
    shown = in_terminal(environment=around)
    hints = [line for line in shown.splitlines() if "sessiontree[tui]" in line]
    assert len(hints) == 1
    assert "Traceback" not in shown
