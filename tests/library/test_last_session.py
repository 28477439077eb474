"""The last session of a terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sessiontree.library import last_session
from sessiontree.library.last_session import LastSession, find_last_session, record_last_session, terminal_id


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_session, "_device", lambda: None)


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"TMUX_PANE": "%3"}, "tmux--3"),
        ({"KITTY_WINDOW_ID": "7"}, "kitty-7"),
        ({"WT_SESSION": "a-b"}, "wt-a-b"),
        ({"TERM_SESSION_ID": "w0t1p0:ABC"}, "apple-w0t1p0-ABC"),
        ({"ZELLIJ_PANE_ID": "2", "ZELLIJ_SESSION_NAME": "s", "KITTY_WINDOW_ID": "7"}, "zellij-s-2"),
        ({"TMUX_PANE": "../../x"}, "tmux-..-..-x"),
        ({}, None),
    ],
)
def test_a_terminal_is_known_by_its_own_variable(variables: dict[str, str], name: str | None) -> None:
    assert terminal_id(variables) == name


def test_the_device_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_session, "_device", lambda: "/dev/pts/3")
    assert terminal_id({"TMUX_PANE": "%3"}) == "pts-3"


def test_the_last_session_is_found_by_the_same_terminal_only(tmp_path: Path) -> None:
    session = tmp_path / "s.jsonl"
    session.write_bytes(b"")
    here, there = {"TMUX_PANE": "%1"}, {"TMUX_PANE": "%2"}
    record_last_session(session, tmp_path, home=str(tmp_path / "home"), environment=here)
    assert find_last_session(str(tmp_path / "home"), here) == LastSession(str(tmp_path), str(session))
    assert find_last_session(str(tmp_path / "home"), there) is None
    assert find_last_session(str(tmp_path / "home"), {}) is None
    (file,) = (tmp_path / "home" / "terminal-sessions").iterdir()
    assert file.read_text() == f"{tmp_path}\n{session}\n"
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_last_record_counts(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"")
        record_last_session(tmp_path / name, tmp_path, home=str(tmp_path), environment={"TMUX_PANE": "1"})
    found = find_last_session(str(tmp_path), {"TMUX_PANE": "1"})
    assert found is not None
    assert found.path == str(tmp_path / "two")


def test_a_session_that_is_gone_is_not_found(tmp_path: Path) -> None:
    record_last_session(tmp_path / "gone", tmp_path, home=str(tmp_path), environment={"TMUX_PANE": "1"})
    assert find_last_session(str(tmp_path), {"TMUX_PANE": "1"}) is None


@pytest.mark.parametrize("data", [b"", b"one line", b"a\n\x00\n", b"\xff\n\xfe\n", b"x" * 100_000])
def test_an_invalid_record_is_ignored(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "terminal-sessions").mkdir()
    (tmp_path / "terminal-sessions" / "tmux-1").write_bytes(data)
    assert find_last_session(str(tmp_path), {"TMUX_PANE": "1"}) is None


def test_a_home_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    record_last_session(tmp_path / "s", tmp_path, home=str(tmp_path / "file"), environment={"TMUX_PANE": "1"})
    record_last_session("a\nb", "c\nd", home=str(tmp_path), environment={"TMUX_PANE": "1"})
    assert not os.path.exists(tmp_path / "terminal-sessions")
