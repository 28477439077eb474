"""Move sessions with their project; tags and pins of sessions."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

import sessiontree
from sessiontree.archive.archive_home import Home
from sessiontree.archive.move import move, plan_move, translate_cwd
from sessiontree.archive.restore import restore
from sessiontree.archive.tags import SessionTags
from sessiontree.errors import DamagedError, ExistsError, UsageError
from sessiontree.paths import project_folder_name
from tests.archive.conftest import Command
from tests.archive.machine import (
    CLAUDE_ID,
    NATIVE_ID,
    archived_lines,
    contents,
    current_lines,
    home_of,
    kill_at_each_step,
    native_lines,
    write_claude,
    write_native,
)
from tests.builders import header, json_line, message_line


def moved(home: Home, path: Path, cwd: str) -> Path:
    session = sessiontree.open(path)
    plan = plan_move(session, cwd, home.allowed_paths, home.environment)
    move(home.archive, session, plan)
    return Path(plan.target)


def test_a_native_session_moves_to_its_new_project_and_only_its_header_changes(tmp_path: Path) -> None:
    home, path, new = home_of(tmp_path), write_native(tmp_path), str(tmp_path / "new-place")
    target = moved(home, path, new)
    assert target == path.parent.parent / project_folder_name(new) / path.name
    assert not path.exists()
    lines = target.read_bytes().splitlines(keepends=True)
    assert lines[1:] == native_lines()[1:]
    assert lines[0] == native_lines()[0].replace(b'"/work/a"', f'"{new}"'.encode())
    after = sessiontree.open(target)
    assert (after.cwd, after.id, after.problems) == (new, NATIVE_ID, [])


def test_a_claude_session_moves_with_its_folder_to_where_claude_code_looks(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_claude(tmp_path)
    before = contents(tmp_path / "user")
    target = moved(home, path, "/work/b")
    assert target == path.parent.parent / "-work-b" / path.name
    assert (target.with_suffix("") / "subagents" / "agent-x.jsonl").exists()
    assert not path.with_suffix("").exists()
    assert sessiontree.open(target).cwd == "/work/b"
    assert target.read_bytes().splitlines()[1:] == before[str(path)].splitlines()[1:]
    restore(home.archive, home.archive.find(CLAUDE_ID))
    assert contents(tmp_path / "user") == before


def test_pi_oh_my_pi_and_neovate_sessions_go_where_their_clients_look(tmp_path: Path) -> None:
    home = home_of(tmp_path)
    user = tmp_path / "user"
    pi = user / ".pi" / "agent" / "sessions" / "--work-a--" / f"2026-02-16T10-00-00-000Z_{NATIVE_ID}.jsonl"
    neovate = user / ".neovate" / "projects" / "work-a" / "0123abcd.jsonl"
    for path in (pi, neovate):
        path.parent.mkdir(parents=True)
    pi.write_bytes(header(cwd="/work/a") + message_line("m0", None, "hello"))
    line = {"type": "message", "role": "user", "content": "hi", "uuid": "u1", "parentUuid": None}
    neovate.write_bytes(json_line({**line, "timestamp": "2026-02-16T10:00:00.000Z", "sessionId": "0123abcd"}))
    before = neovate.read_bytes()
    assert moved(home, pi, "/work/b").parent.name == "--work-b--"
    found = moved(home, neovate, "/work/b")
    assert (found.parent.name, found.read_bytes()) == ("work-b", before)


def test_undoing_a_move_keeps_lines_added_since(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    target = moved(home, path, "/work/b")
    with target.open("ab") as file:
        file.write(message_line("x1", "n3", "later"))
    restore(home.archive, home.archive.find(NATIVE_ID))
    assert path.read_bytes() == b"".join(native_lines()) + message_line("x1", "n3", "later")
    assert not target.exists()


def test_an_existing_file_or_folder_is_never_overwritten(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_claude(tmp_path)
    other = path.parent.parent / "-work-b" / path.name
    other.parent.mkdir()
    other.write_bytes(b"another session\n")
    before = contents(tmp_path / "user")
    with pytest.raises(ExistsError):
        moved(home, path, "/work/b")
    other.unlink()
    other.with_suffix("").mkdir()
    with pytest.raises(ExistsError, match="folder"):
        moved(home, path, "/work/b")
    del before[str(other)]
    assert contents(tmp_path / "user") == before
    assert home.archive.items() == []


def test_a_process_killed_while_moving_leaves_every_line_and_the_next_run_finishes(tmp_path: Path, stride: int) -> None:
    def act(home: Home) -> None:
        moved(home, find(Path(home.folder).parent), "/work/b")

    def find(here: Path) -> Path:
        return next(here.glob("user/.claude/projects/-work-a/*.jsonl"))

    def check(here: Path) -> None:
        home = home_of(here)
        original = write_claude(here / "fresh").read_bytes()
        assert set(original.split(b"\n")) <= current_lines(home) | archived_lines(home)
        if list(here.glob("user/.claude/projects/-work-a/*.jsonl")):
            moved(home, find(here), "/work/b")
        (target,) = here.glob("user/.claude/projects/*/*.jsonl")
        assert target.parent.name == "-work-b"
        assert sorted(path.name for path in target.with_suffix("").iterdir()) == ["subagents", "tool-results"]
        for item in reversed(home.archive.items()):
            restore(home.archive, item)
        assert find(here).read_bytes() == original

    assert kill_at_each_step(tmp_path, lambda here: write_claude(here), act, check, stride) > 15


def test_a_process_killed_while_undoing_a_move_leaves_every_line(tmp_path: Path, stride: int) -> None:
    def prepare(here: Path) -> None:
        moved(home_of(here), write_claude(here), "/work/b")

    def check(here: Path) -> None:
        home = home_of(here)
        fresh = write_claude(here / "fresh")
        assert set(fresh.read_bytes().split(b"\n")) <= current_lines(home) | archived_lines(home)
        for item in home.archive.items():
            restore(home.archive, item)
        expected = {path.replace(f"{here}/fresh/", f"{here}/"): data for path, data in contents(here / "fresh").items()}
        assert {path: data for path, data in contents(here / "user").items() if ".tmp" not in path} == expected

    steps = kill_at_each_step(
        tmp_path, prepare, lambda home: restore(home.archive, home.archive.items()[-1]), check, stride
    )
    assert steps > 8


def test_the_command_moves_one_session_or_all_of_a_project(tmp_path: Path, command: Command) -> None:
    path = write_native(tmp_path)
    write_claude(tmp_path)
    inner = [header(cwd="/work/a/inner", sessiontree=1), *native_lines()[1:]]
    write_native(tmp_path, inner, name="2026_inner")
    write_native(tmp_path, [header(cwd="/work/a-b", sessiontree=1), *native_lines()[1:]], name="2026_other")
    before = contents(tmp_path)
    shown = command("mv", "--project", "/work/a", "/work/b", "--json").json
    assert sorted(move["cwd"] for move in shown["moves"]) == ["/work/b", "/work/b", "/work/b/inner"]
    assert contents(tmp_path) == before
    assert "moved 3 sessions" in command("mv", "--project", "/work/a", "/work/b", "--yes").err
    assert not path.exists()
    assert (path.parent / "2026_other.jsonl").exists(), "/work/a-b is another project than /work/a"
    assert "nothing to move" in command("mv", "--project", "/work/a", "/work/b").err
    one = command("mv", CLAUDE_ID, "--cwd", "/work/c", "--yes", "--json").json
    assert one["moves"][0]["to"].split("/")[-2] == "-work-c"
    for arguments in ([], [CLAUDE_ID], ["--cwd", "/x"], [CLAUDE_ID, "--cwd", "/x", "--project", "/a", "/b"]):
        with pytest.raises(UsageError):
            command("mv", *arguments)


def test_only_folders_below_a_project_belong_to_it() -> None:
    assert translate_cwd("/a/b", "/a/b", "/n") == "/n"
    assert translate_cwd("/a/b/c", "/a/b", "/n") == "/n/c"
    assert translate_cwd("/a/bc", "/a/b", "/n") is None
    assert translate_cwd("", "/a/b", "/n") is None


# Tags


def test_tags_and_pins_change_no_session_file(tmp_path: Path, command: Command) -> None:
    path = write_claude(tmp_path)
    before = contents(tmp_path / "user")
    assert command("tag", str(path), "work", "two  words").out.splitlines() == ["work", "two words"]
    command("tag", str(path), "work", "--remove")
    assert command("tag", str(path), "--json").json["tags"] == ["two words"]
    assert "keep" in command("pin", CLAUDE_ID).err
    assert command("clean", "--older-than", "0d", "--json").json["spared"] == {"pinned": 1}
    command("pin", CLAUDE_ID, "--off")
    assert len(command("clean", "--older-than", "0d", "--json").json["sessions"]) == 1
    assert contents(tmp_path / "user") == before
    with pytest.raises(UsageError):
        command("tag", str(path), " ")


def test_tags_follow_a_moved_session_but_not_a_copy_of_it(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    copy = write_native(tmp_path, name="2026_copy")
    home.tags.change(NATIVE_ID, str(path), lambda mark: msgspec.structs.replace(mark, pinned=True))
    assert not home.tags.find(NATIVE_ID, str(copy)).pinned
    target = moved(home, path, "/work/b")
    assert home.tags.find(NATIVE_ID, str(target)).pinned


def test_a_damaged_tag_file_is_an_error_and_never_emptied(tmp_path: Path) -> None:
    home = home_of(tmp_path)
    (tmp_path / "home").mkdir()
    Path(home.tags.path).write_bytes(b'{"marks": [{"torn')
    with pytest.raises(DamagedError):
        home.tags.change("id", "/path", lambda mark: msgspec.structs.replace(mark, pinned=True))
    assert Path(home.tags.path).read_bytes() == b'{"marks": [{"torn'


def test_tags_set_by_several_processes_at_once_are_all_kept(tmp_path: Path) -> None:
    pids = []
    for number in range(8):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                marks = home_of(tmp_path).tags
                marks.change(f"id{number}", f"/s{number}", lambda mark: msgspec.structs.replace(mark, tags=("t",)))
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 8
    assert sorted(mark.session for mark in home_of(tmp_path).tags.read()) == [f"id{number}" for number in range(8)]


def test_a_process_killed_while_tagging_leaves_the_old_or_the_new_tags(tmp_path: Path, stride: int) -> None:
    def mark(home: Home, tag: str) -> None:
        home.tags.change("id", "/path", lambda mark: msgspec.structs.replace(mark, tags=(*mark.tags, tag)))

    def check(here: Path) -> None:
        assert home_of(here).tags.read() in (
            [SessionTags("id", "/path", ("old",))],
            [SessionTags("id", "/path", ("old", "new"))],
        )

    steps = kill_at_each_step(
        tmp_path, lambda here: mark(home_of(here), "old"), lambda home: mark(home, "new"), check, stride
    )
    assert steps > 4


def test_a_session_is_renamed_as_its_client_does_it(tmp_path: Path, command: Command) -> None:
    for path in (write_native(tmp_path), write_claude(tmp_path)):
        before = path.read_bytes()
        assert command("rename", str(path), "  a new   name ").out == "a new name\n"
        assert path.read_bytes().startswith(before)
        assert sessiontree.open(path).given_name == "a new name"
