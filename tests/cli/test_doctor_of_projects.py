"""`doctor` without arguments, past missing files, and in agreement with `list`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import sessiontree
from sessiontree.library import Library
from sessiontree.library.summary import Summary
from tests.cli.conftest import Run
from tests.dialects.packed_goldens import unpack


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a sound and a damaged session; another project has one, too."""
    project, other = tmp_path / "here", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
        for text in ("sound", "damaged"):
            with sessiontree.create(folder, home=tmp_path / "home") as session:
                session.append("user", f"{text} in {folder.name}")
            if text == "damaged":
                path = Path(session.location)
                path.write_bytes(path.read_bytes() + b'{"type": "mess')
    monkeypatch.chdir(project)
    return project


def test_doctor_alone_checks_this_project_and_all_with_an_option(run: Run, here: Path) -> None:
    alone = run("doctor", "--json")
    assert alone.code == 3
    assert len(alone.json["sessions"]) == 2
    assert all("/here-" in report["path"] for report in alone.json["sessions"])
    assert len(run("doctor", "--all", "--json").json["sessions"]) == 4
    assert "2 files: 1 without problems" in run("doctor").out


def test_doctor_in_a_project_without_sessions_says_so(
    run: Run, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("doctor")
    assert (ran.code, ran.out) == (0, "")
    assert "4 in other projects (use --all)" in ran.err


def test_doctor_goes_on_past_a_missing_file(run: Run, here: Path) -> None:
    sound = next(row["path"] for row in run("list", "--json").json["sessions"] if "sound" in row["title"])
    ran = run("doctor", "gone.jsonl", sound, "no such title")
    assert ran.code == 1
    assert "gone.jsonl: no such file or folder" in ran.err
    assert "no session matches" in ran.err
    assert "1 without problems" in ran.out
    reports = run("doctor", "gone.jsonl", sound, "--json").json["sessions"]
    assert [bool(report["error"]) for report in reports] == [True, False]


def test_the_mark_of_a_listing_agrees_with_doctor(run: Run, here: Path, tmp_path: Path) -> None:
    """A duplicate id hides a message."""
    with sessiontree.create(here, home=tmp_path / "home") as session:
        session.append("user", "twice")
        session.append("assistant", [{"type": "text", "text": "Yes."}])
    path = Path(session.location)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[-1].replace(b"Yes.", b"No.")]))
    first = {row["path"]: row["health"] for row in run("list", "--json").json["sessions"]}
    assert first[str(path)] == "damaged", "a small session is examined when it is read"
    checked = {report["path"]: report for report in run("doctor", "--json").json["sessions"]}
    damaged = {
        place for place, report in checked.items() if any(found["severity"] != "note" for found in report["findings"])
    }
    assert str(path) in damaged
    listed = {row["path"] for row in run("list", "--json").json["sessions"] if row["health"] == "damaged"}
    assert listed == damaged


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without sessions."""
    folder = tmp_path / "alone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def health(run: Run) -> str:
    (row,) = run("list", "--json").json["sessions"]
    return str(row["health"])


def test_a_large_session_is_unchecked_until_it_was_read_completely(run: Run, alone: Path, tmp_path: Path) -> None:
    with sessiontree.create(alone, home=tmp_path / "home") as session:
        for number in range(40):
            session.append("user", f"question {number} " + "x" * 10_000)
            session.append("assistant", [{"type": "text", "text": "Yes."}])
    path = Path(session.location)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[40] = lines[40].replace(b'"id":"', b'"id":"lost', 1)  # in the part that a listing does not read
    path.write_bytes(b"".join(lines))
    assert health(run) == "unchecked"
    assert health(run) == "damaged", "counting it after the first listing found the damage"


def test_a_large_sound_session_that_grows_is_unchecked_until_it_rests(run: Run, alone: Path, tmp_path: Path) -> None:
    with sessiontree.create(alone, home=tmp_path / "home") as session:
        session.append("user", "x" * 300_000)
        session.append("assistant", [{"type": "text", "text": "Yes."}])
        assert [health(run), health(run)] == ["unchecked", "ok"]
        session.append("user", "more")
        assert [health(run), health(run)] == ["unchecked", "unchecked"]
    resting = time.time() - 3600
    os.utime(session.location, (resting, resting))
    assert [health(run), health(run)] == ["unchecked", "ok"]


@pytest.mark.parametrize("command", ["list", "doctor", "info"])
def test_a_large_session_in_another_form_than_lines_becomes_known_as_well(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    unpack("gemini-cli", "07-unicode-long", tmp_path).home.rename(tmp_path / "user")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))

    def known() -> Summary:
        with Library() as library:
            return next(summary for summary in library.everything() if summary.messages)

    before = known()
    assert (before.exact, before.health) == (False, "unchecked")
    assert run(command, *(["--all"] if command == "list" else [before.ref])).code == 0
    after = known()
    assert after.exact or command == "doctor"
    assert after.health == "ok" or command == "info"
