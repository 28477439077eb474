"""Pruning removes one branch, byte for byte, and restore puts it back at its old position."""

from __future__ import annotations

from pathlib import Path

import pytest

import sessiontree
from sessiontree.archive.archive_home import Home
from sessiontree.archive.prune_branch import plan_prune, prune
from sessiontree.archive.restore import restore
from sessiontree.errors import ConflictError, DamagedError, NotFoundError, UsageError
from tests.archive.conftest import Command
from tests.archive.machine import (
    NATIVE_ID,
    archived_lines,
    claude_message,
    current_lines,
    home_of,
    kill_at_each_step,
    native_lines,
    write_claude,
    write_native,
)
from tests.builders import message_line


def pruned(home: Home, path: Path, entry: str) -> str:
    session = sessiontree.open(path)
    return prune(home.archive, session, plan_prune(session, entry)).id


def test_the_branch_is_removed_and_every_other_line_is_unchanged(tmp_path: Path) -> None:
    home, path, lines = home_of(tmp_path), write_native(tmp_path), native_lines()
    before = sessiontree.open(path)
    context = before.context()
    pruned(home, path, "m2")
    assert path.read_bytes() == b"".join(lines[:3] + lines[5:])
    after = sessiontree.open(path)
    assert (after.leaf, after.context(), after.problems) == (before.leaf, context, [])
    (item,) = home.archive.items()
    assert item.edit is not None
    start, length = item.edit.taken[0]
    assert b"".join(lines)[start : start + length] == lines[3] + lines[4]


def test_restore_brings_the_branch_back_byte_for_byte(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    before = path.read_bytes()
    pruned(home, path, "m2")
    assert restore(home.archive, home.archive.find(NATIVE_ID)) == [str(path)]
    assert path.read_bytes() == before
    assert home.archive.items() == []


def test_lines_added_since_stay_when_the_branch_is_restored(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    before = path.read_bytes()
    pruned(home, path, "m2")
    with path.open("ab") as file:
        file.write(message_line("x1", "n3", "later"))
    restore(home.archive, home.archive.find(NATIVE_ID))
    assert path.read_bytes() == before + message_line("x1", "n3", "later")
    assert set(sessiontree.open(path).leaves()) == {"m3", "x1"}


def test_a_file_without_a_last_newline_is_restored_without_one(tmp_path: Path) -> None:
    lines = native_lines()
    lines[-1] = lines[-1].rstrip(b"\n")
    home, path = home_of(tmp_path), write_native(tmp_path, lines)
    pruned(home, path, "m2")
    with path.open("ab") as file:
        file.write(b"\n" + message_line("x1", "n3", "later"))
    restore(home.archive, home.archive.items()[-1])
    assert path.read_bytes() == b"".join(lines) + b"\n" + message_line("x1", "n3", "later")


def test_two_prunings_are_undone_in_reverse_order(tmp_path: Path) -> None:
    lines = [*native_lines()[:5], message_line("k2", "m1", "third"), *native_lines()[5:]]
    home, path = home_of(tmp_path), write_native(tmp_path, lines)
    first, second = pruned(home, path, "m2"), pruned(home, path, "k2")
    with pytest.raises(ConflictError, match="undo that first"):
        restore(home.archive, home.archive.find(first))
    restore(home.archive, home.archive.find(second))
    restore(home.archive, home.archive.find(first))
    assert path.read_bytes() == b"".join(lines)


def test_the_current_branch_cannot_be_pruned(tmp_path: Path) -> None:
    path = write_native(tmp_path)
    for entry in ("n2", "n3", "m1", "m0"):
        with pytest.raises(UsageError, match="current entry is on this branch"):
            plan_prune(sessiontree.open(path), entry)
    with pytest.raises(NotFoundError):
        plan_prune(sessiontree.open(path), "nothing")


def test_an_entry_that_shares_its_line_is_rejected_and_nothing_is_written(tmp_path: Path) -> None:
    lines = native_lines()
    lines[3:5] = [lines[3].rstrip(b"\n") + lines[4]]
    home, path = home_of(tmp_path), write_native(tmp_path, lines)
    with pytest.raises(DamagedError, match="repair"):
        pruned(home, path, "m3")
    assert path.read_bytes() == b"".join(lines)
    assert home.archive.items() == []


def test_a_session_outside_the_known_roots_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.jsonl"
    path.write_bytes(b"".join(native_lines()))
    with pytest.raises(UsageError, match="outside"):
        pruned(home_of(tmp_path), path, "m2")
    assert path.read_bytes() == b"".join(native_lines())


def test_a_session_that_grows_during_the_rewrite_is_not_changed(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    session = sessiontree.open(path)
    plan = plan_prune(session, "m2")
    with path.open("ab") as file:
        file.write(message_line("x1", "n3", "meanwhile"))
    with pytest.raises(ConflictError, match="nothing was written"):
        prune(home.archive, session, plan)
    assert path.read_bytes() == b"".join(native_lines()) + message_line("x1", "n3", "meanwhile")
    assert home.archive.items() == []
    assert not [found for found in path.parent.iterdir() if found != path]


def test_a_rewound_branch_of_a_claude_session_can_be_pruned(tmp_path: Path) -> None:
    lines = [claude_message("u1", None, "first"), claude_message("a1", "u1", "answer", "assistant")]
    lines += [claude_message("u2", "a1", "left"), claude_message("a2", "u2", "left answer", "assistant")]
    lines += [claude_message("u3", "a1", "right"), claude_message("a3", "u3", "right answer", "assistant")]
    home, path = home_of(tmp_path), write_claude(tmp_path, lines)
    pruned(home, path, "u2")
    assert path.read_bytes() == b"".join(lines[:2] + lines[4:])
    restore(home.archive, home.archive.items()[-1])
    assert path.read_bytes() == b"".join(lines)


def test_a_process_killed_while_pruning_leaves_the_old_or_the_new_file_and_every_line(
    tmp_path: Path, stride: int
) -> None:
    lines = native_lines()
    whole, short = b"".join(lines), b"".join(lines[:3] + lines[5:])

    def act(home: Home) -> None:
        pruned(home, next(Path(home.folder).glob("sessions/*/*.jsonl")), "m2")

    def check(here: Path) -> None:
        home = home_of(here)
        path = next((here / "home").glob("sessions/*/*.jsonl"))
        assert path.read_bytes() in (whole, short)
        assert set(whole.split(b"\n")) <= current_lines(home) | archived_lines(home)
        for item in home.archive.items():
            restore(home.archive, item)
        assert path.read_bytes() == whole

    assert kill_at_each_step(tmp_path, lambda here: write_native(here), act, check, stride) > 15


def test_a_process_killed_while_restoring_a_branch_leaves_every_line(tmp_path: Path, stride: int) -> None:
    whole = b"".join(native_lines()) + message_line("x1", "n3", "later")

    def prepare(here: Path) -> None:
        path = write_native(here)
        pruned(home_of(here), path, "m2")
        with path.open("ab") as file:
            file.write(message_line("x1", "n3", "later"))

    def check(here: Path) -> None:
        home = home_of(here)
        assert set(whole.split(b"\n")) <= current_lines(home) | archived_lines(home)
        for item in home.archive.items():
            restore(home.archive, item)
        assert next((here / "home").glob("sessions/*/*.jsonl")).read_bytes() == whole

    steps = kill_at_each_step(
        tmp_path, prepare, lambda home: restore(home.archive, home.archive.items()[-1]), check, stride
    )
    assert steps > 8


def test_the_command_shows_a_plan_and_carries_it_out_with_yes(tmp_path: Path, command: Command) -> None:
    path = write_native(tmp_path)
    before = path.read_bytes()
    assert command("prune", NATIVE_ID, "--branch", "m2").out.startswith("2 entries, ")
    assert path.read_bytes() == before
    done = command("prune", NATIVE_ID, "--branch", "m2", "--yes", "--json").json
    assert (done["entries"], done["leaves"], done["done"]) == (2, ["m3"], True)
    assert path.read_bytes() != before
    command("restore", done["item"])
    assert path.read_bytes() == before
