"""Commands printed as the next step can be run unchanged, and mean the same session."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

import sessiontree
from sessiontree.core.messages import Usage
from sessiontree.explore.state import explorations, find_exploration
from sessiontree.paths import name_of
from sessiontree.session.session import Session
from tests.chat.terminals import Terminal, call, scripted, turn
from tests.explore.programs import Repository
from tests.explore.repos import git

pytestmark = pytest.mark.slow

TWINS = ("01a1e253-0000-7000-8000-000000000001", "01a1e253-0000-7000-8000-000000000002")
"""Ids of one minute: as long as that, sessions made one after the other begin alike."""
LONG = "\n".join(f"Line {number}." for number in range(1, 31))


@pytest.fixture
def place(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def twins(place: Repository, home: Path) -> list[Session]:
    """Two sessions whose ids have the same first eight characters."""
    made = []
    for id in TWINS:
        session = sessiontree.create(place.project, home=home, id=id)
        session.append("user", "What shall we do?")
        session.close()
        made.append(session)
    return made


def hint(text: str, command: str = "explore") -> list[str]:
    """The words of the last command in a text."""
    return shlex.split(re.findall(rf"sessiontree ({command} [^`\n]*)", text)[-1])


def meant_by(place: Repository, words: list[str]) -> str:
    """The session file that a command with these words uses."""
    at = words.index("--home") if "--home" in words else None
    home = [] if at is None else words[at : at + 2]
    done = place.sessiontree("info", words[2], *home, "--json")
    assert done.returncode == 0, done.stderr
    path: str = json.loads(done.stdout)["path"]
    return path


def test_a_session_is_named_by_its_shortest_unique_id_prefix(place: Repository) -> None:
    first, second = twins(place, place.home)
    done = place.sessiontree("explore", second.id, "count", "--model", "demo")
    assert done.returncode == 0, done.stderr
    assert meant_by(place, hint(done.stderr)) == second.location
    keep = hint(done.stderr)
    assert keep == ["explore", "keep", second.id, "LANE"]
    kept = place.sessiontree(*keep[:-1], "1")
    assert kept.returncode == 0, kept.stderr
    assert explorations(sessiontree.open(first.location, home=place.home)) == []


def test_a_session_given_by_title_is_named_by_its_id(place: Repository) -> None:
    _, second = twins(place, place.home)
    with sessiontree.open(second.location, home=place.home) as session:
        session.rename("the parser's speed")
    done = place.sessiontree("explore", "the parser's speed", "count", "--model", "demo")
    assert done.returncode == 0, done.stderr
    assert hint(done.stderr) == ["explore", "keep", second.id, "LANE"]


def test_a_session_given_by_path_is_named_by_its_path(place: Repository) -> None:
    path = place.project.parent / "my files" / "it's one.jsonl"
    path.parent.mkdir()
    shutil.copy(place.location, path)
    typed = "../my files/it's one.jsonl"
    done = place.sessiontree("explore", typed, "count", "--model", "demo", "--keep-worktrees")
    listed = place.sessiontree("explore", "list", typed)
    assert hint(done.stderr)[:3] == ["explore", "keep", typed]
    assert hint(listed.stderr)[:3] == ["explore", "resume", typed]
    assert Path(meant_by(place, hint(listed.stderr))).samefile(path)
    assert place.sessiontree(*hint(listed.stderr)).returncode == 0
    assert git(place.project, "worktree", "list").count("\n") == 0
    assert explorations(place.opened()) == []


def test_a_given_home_is_part_of_the_hint(place: Repository) -> None:
    home = place.project.parent / "another home"
    _, second = twins(place, home)
    arguments = ("explore", second.id, "--home", "../another home")
    limited = scripted(place, turn("I write.", call("write", path="w", content="w"), usage=Usage(9_000, 0)))
    done = place.sessiontree(*arguments, "go", "--model", limited, "--budget", "500")
    for command in re.findall(r"sessiontree (explore [^`]*)", done.stderr):
        assert meant_by(place, shlex.split(command)) == str(second.location)
    assert done.stderr.count("--home '../another home'") == 2
    assert "--budget N" in done.stderr


def test_the_command_for_the_rest_of_an_answer_shows_it(place: Repository) -> None:
    home = place.project.parent / "another home"
    _, second = twins(place, home)
    model = scripted(place, turn(LONG, repeat=True))
    arguments = (second.id, "go", "--model", model, "--home", str(home))
    done = place.sessiontree("explore", *arguments, more={"COLUMNS": "300"})
    assert "Line 30." not in done.stdout
    shown = place.sessiontree(*hint(done.stdout, "show"))
    assert (shown.returncode, "Line 30." in shown.stdout) == (0, True)


def test_files_elsewhere_and_files_with_the_same_id_are_named_by_path(place: Repository) -> None:
    home, session = str(place.home), place.opened()
    assert session.id.startswith(name_of(home, session.id, session.location))
    elsewhere = str(shutil.copy(place.location, place.project.parent / "worktree.jsonl"))
    assert name_of(home, session.id, elsewhere) == elsewhere
    folder = Path(place.location).parent.parent / "moved"
    folder.mkdir()
    shutil.copy(place.location, folder)
    assert name_of(home, session.id, session.location) == session.location


def test_a_folder_with_a_repository_in_it_is_reported_as_kept(place: Repository) -> None:
    place.run_json("count", "--n", "2", "--model", "demo", "--keep-worktrees")
    first, _ = find_exploration(place.opened()).lanes
    assert first.worktree is not None
    inner = Path(first.worktree.path) / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    going, staying = place.explore("list").stderr.splitlines()
    assert "folders of lane 2 are left over" in going
    assert "folders of lane 1 are kept, because they contain repositories; move those elsewhere" in staying
    assert "was kept: it contains the repository inner" in place.explore("resume").stderr
    (staying,) = place.explore("compare").stderr.splitlines()
    assert "move those elsewhere" in staying
    inner.rename(place.project.parent / "moved")
    assert place.sessiontree(*hint(staying)).returncode == 0
    assert not Path(first.worktree.path).exists()


# In chat


def test_chat_decides_later_with_the_same_command(place: Repository) -> None:
    script = scripted(place, turn("So says the script.", repeat=True))
    with Terminal(place, ["--session", place.location, "--model", script]) as terminal:
        terminal.enter("/explore")
        terminal.wait_for("no exploration in this session yet")
        terminal.enter('/explore 2 "go"')
        terminal.wait_for("decide later]")
        terminal.answer("")
        terminal.wait_for("decide later with /explore")
        terminal.enter("/explore")
        terminal.wait_for("│ So says the script.")
        terminal.wait_for("decide later]")
        terminal.interrupt()
        terminal.wait_for("decide later with /explore")
        terminal.enter("/explore")
        terminal.wait_for("decide later]")
        terminal.answer("drop 1 1")
        terminal.wait_for("dropped: 1 ·")
        terminal.wait_for("decide later]")
        terminal.answer("")
        terminal.wait_for("decide later with /explore")
        terminal.enter("/explore")
        terminal.wait_for("decide later]")
        terminal.answer("keep 2")
        terminal.wait_for("kept: 2")
        terminal.enter("and on")
        terminal.wait_for("So says the script.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    session = place.opened()
    lanes = find_exploration(session).lanes
    assert [lane.verdict and lane.verdict.verdict for lane in lanes] == ["dropped", "kept"]
    assert lanes[1].start in session.path_ids(session.leaf)
    assert git(place.project, "worktree", "list").count("\n") == 0


def test_chat_and_command_line_see_each_other_s_lanes_and_decisions(place: Repository) -> None:
    script = scripted(place, turn("So says the script.", repeat=True))
    with Terminal(place, ["--session", place.location, "--model", script]) as terminal:
        terminal.wait_for_prompt()
        place.run_json("count", "--n", "2", "--model", "demo")
        place.run_json("drop", "2")
        terminal.answer("/explore")
        assert "done (dropped)" in terminal.wait_for("decide later]")
        terminal.answer("keep 1")
        terminal.wait_for("kept: 1")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert (place.project / "demo_words.py").is_file()


def test_chat_does_not_decide_about_lanes_of_another_process(place: Repository) -> None:
    slow = scripted(place, turn("Slow.", first_delay=60.0, repeat=True))
    with place.terminal("go", "--model", slow) as working:
        working.wait_for("running")
        with Terminal(place, ["--session", place.location, "--model", slow]) as terminal:
            terminal.enter("/explore")
            terminal.wait_for("another process is working on it; wait until it has ended")
            working.kill()
            terminal.enter("/explore")
            words = hint(terminal.wait_for("--run "))
            assert meant_by(place, words) == place.location
            terminal.wait_for("decide later]")
            terminal.answer("")
            terminal.enter("/quit")
            assert terminal.end() == 0


def test_more_lanes_than_chat_allows_are_refused_with_a_command_that_works(place: Repository) -> None:
    with Terminal(place, ["--session", place.location, "--model", scripted(place, turn("Unused."))]) as terminal:
        terminal.enter('/explore 17 "go"')
        terminal.wait_for("explore SESSION PROMPT --n 17 --max-lanes 17")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert explorations(place.opened()) == []


def test_hints_name_the_models_that_only_the_file_names(place: Repository) -> None:
    place.run_json("count", "--n", "2", "--model", "demo", "--keep-worktrees")
    path = Path(place.location)
    changed = path.read_bytes().replace(b'"model":"demo"', b'"model":"other:large one"').splitlines(keepends=True)
    ends = [line for line in changed if b'"sessiontree.explore.end"' in line]
    path.write_bytes(b"".join(line for line in changed if line != ends[-1]))  # one lane did not finish
    assert len(find_exploration(place.opened()).open_lanes) == 1
    (shown,) = place.explore("list").stderr.splitlines()
    assert hint(shown)[-2:] == ["--model", "other:large one"]
