"""Archived sessions are restored byte for byte, and a killed process loses nothing."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import msgspec
import pytest

import sessiontree
from sessiontree.archive.allowed_paths import AllowedPaths
from sessiontree.archive.archive import Archive
from sessiontree.archive.archive_home import Home
from sessiontree.archive.catalog import SessionInfo
from sessiontree.archive.move import move, plan_move
from sessiontree.archive.prune_branch import plan_prune, prune
from sessiontree.archive.restore import restore
from sessiontree.errors import AmbiguousError, ConflictError, DamagedError, ExistsError, NotFoundError, UsageError
from tests.archive.machine import (
    CLAUDE_ID,
    NATIVE_ID,
    contents,
    home_of,
    kill_at_each_step,
    write_claude,
    write_native,
)


def session_info(path: Path, agent: str = "native", session: str = NATIVE_ID) -> SessionInfo:
    return SessionInfo(str(path), agent, session, "a title")


def archive_claude(home: Home, path: Path) -> None:
    home.archive.archive(session_info(path, "claude", CLAUDE_ID))


def test_an_archived_session_is_restored_byte_for_byte_with_its_folder(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_claude(tmp_path)
    before = contents(tmp_path / "user")
    archived = home.archive.archive(session_info(path, "claude", CLAUDE_ID))
    assert archived.remaining == ()
    assert contents(tmp_path / "user") == {}
    assert not path.with_suffix("").exists()
    written = home.archive.restore(home.archive.find(CLAUDE_ID[:8]))
    assert contents(tmp_path / "user") == before
    assert sorted(written) == sorted(before)
    assert home.archive.items() == []
    assert not any(path.suffix == ".zst" for path in (tmp_path / "home" / "archive").rglob("*"))


def test_the_catalog_describes_each_item(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    size = path.stat().st_size
    home.archive.archive(session_info(path), why="clean 30d")
    (item,) = home_of(tmp_path).archive.items()
    assert (item.path, item.agent, item.session, item.title, item.size) == (
        str(path),
        "native",
        NATIVE_ID,
        "a title",
        size,
    )
    assert (item.why, item.kind, item.when[:2]) == ("clean 30d", "moved", "20")


def test_a_restored_claude_session_has_the_current_time_and_others_their_own(tmp_path: Path) -> None:
    home, claude, native = home_of(tmp_path), write_claude(tmp_path), write_native(tmp_path)
    for path in (claude, native):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    archive_claude(home, claude)
    home.archive.archive(session_info(native))
    for item in home.archive.items():
        home.archive.restore(item)
    assert claude.stat().st_mtime > time.time() - 60, "Claude Code deletes files by an old date"
    assert native.stat().st_mtime == 1_000_000_000


def test_all_files_are_readable_by_the_user_only(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    path.chmod(0o644)
    old = os.umask(0)
    try:
        home.archive.archive(session_info(path))
        for file in (tmp_path / "home" / "archive").rglob("*"):
            assert stat.S_IMODE(file.stat().st_mode) == (0o700 if file.is_dir() else 0o600)
        home.archive.restore(home.archive.find(NATIVE_ID))
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_restoring_never_overwrites_and_writes_nothing_on_a_conflict(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_claude(tmp_path)
    archive_claude(home, path)
    agent = path.with_suffix("") / "subagents" / "agent-x.jsonl"
    agent.parent.mkdir(parents=True)
    agent.write_bytes(b"someone else was here\n")
    with pytest.raises(ExistsError, match="another file"):
        home.archive.restore(home.archive.find(CLAUDE_ID))
    assert contents(tmp_path / "user") == {str(agent): b"someone else was here\n"}
    assert len(home.archive.items()) == 1


def test_a_session_that_changes_while_it_is_archived_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    put_file = home.archive.objects.put_file

    def put_and_grow(file: str) -> object:
        stored = put_file(file)
        with open(file, "ab") as grown:
            grown.write(b"more\n")
        return stored

    monkeypatch.setattr(home.archive.objects, "put_file", put_and_grow)
    with pytest.raises(ConflictError, match="was not deleted"):
        home.archive.archive(session_info(path))
    assert path.read_bytes().endswith(b"more\n")


def test_a_damaged_object_is_detected_and_nothing_is_written(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    home.archive.archive(session_info(path))
    (packed,) = (tmp_path / "home" / "archive" / "objects").rglob("*.zst")
    data = bytearray(packed.read_bytes())
    data[len(data) // 2] ^= 0xFF
    packed.write_bytes(data)
    with pytest.raises(DamagedError):
        home.archive.restore(home.archive.find(NATIVE_ID))
    assert contents(tmp_path / "home" / "sessions") == {}
    packed.write_bytes(data[: len(data) // 2])
    with pytest.raises(DamagedError):
        home.archive.restore(home.archive.find(NATIVE_ID))
    assert len(home.archive.items()) == 1


def test_a_damaged_object_is_replaced_by_a_good_copy_of_the_same_content(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    before = path.read_bytes()
    home.archive.keep(session_info(path))
    (packed,) = (tmp_path / "home" / "archive" / "objects").rglob("*.zst")
    packed.write_bytes(b"nonsense")
    home.archive.archive(session_info(path))
    home.archive.restore(home.archive.items()[-1])
    assert path.read_bytes() == before


def test_a_link_in_the_folder_is_neither_followed_nor_archived(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_claude(tmp_path)
    outside = tmp_path / "outside.txt"
    outside.write_bytes(b"not a session")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "y.jsonl").write_bytes(b"not ours either")
    link = path.with_suffix("") / "subagents" / "agent-y.jsonl"
    link.symlink_to(outside)
    (path.with_suffix("") / "linked").symlink_to(tmp_path / "elsewhere")
    archived = home.archive.archive(session_info(path, "claude", CLAUDE_ID))
    assert archived.remaining == (str(link),)
    assert outside.read_bytes() == b"not a session"
    assert (tmp_path / "elsewhere" / "y.jsonl").exists()
    assert all("agent-y" not in file.path and "linked" not in file.path for file in archived.item.files)


@pytest.mark.parametrize("make", ["outside", "dotted", "link", "folder link", "root", "nul", "missing", "folder"])
def test_a_path_that_is_not_a_file_below_a_known_root_is_rejected(tmp_path: Path, make: str) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    outside = tmp_path / "outside" / "x.jsonl"
    outside.parent.mkdir()
    outside.write_bytes(path.read_bytes())
    link, folder = path.parent / "link.jsonl", path.parent.parent / "linked"
    link.symlink_to(outside)
    folder.symlink_to(outside.parent)
    wanted = {
        "outside": str(outside),
        "dotted": str(path.parent / ".." / ".." / ".." / "outside" / "x.jsonl"),
        "link": str(link),
        "folder link": str(folder / "x.jsonl"),
        "root": str(path.parent.parent),
        "nul": str(path) + "\x00",
        "missing": str(path) + "x",
        "folder": str(path.parent),
    }[make]
    for act in (home.archive.archive, home.archive.keep):
        with pytest.raises((UsageError, NotFoundError)):
            act(SessionInfo(wanted))
    assert outside.read_bytes() == path.read_bytes()
    assert home.archive.items() == []


def test_nothing_is_restored_through_a_link_that_points_outside_the_roots(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    home.archive.archive(session_info(path))
    path.parent.rmdir()
    (tmp_path / "outside").mkdir()
    path.parent.symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="outside the session folders"):
        home.archive.restore(home.archive.find(NATIVE_ID))
    assert contents(tmp_path / "outside") == {}


@pytest.mark.parametrize(
    "path", ["/etc/x.jsonl", "{root}/../../x.jsonl", "{root}/a/../../../x", "relative.jsonl", "{root}"]
)
def test_a_catalog_line_with_a_path_outside_the_roots_is_rejected(tmp_path: Path, path: str) -> None:
    home, session = home_of(tmp_path), write_native(tmp_path)
    item = home.archive.archive(session_info(session)).item
    wanted = path.format(root=tmp_path / "home" / "sessions")
    files = tuple(msgspec.structs.replace(file, path=wanted) for file in item.files)
    home.archive.catalog.add(msgspec.structs.replace(item, id="hostile", path=wanted, files=files))
    with pytest.raises(UsageError):
        home.archive.restore(home.archive.find("hostile"))
    bad = msgspec.structs.replace(item, id="worse", files=(msgspec.structs.replace(item.files[0], sha256="../../x"),))
    home.archive.catalog.add(bad)
    with pytest.raises(NotFoundError):
        home.archive.restore(home.archive.find("worse"))
    assert contents(tmp_path / "home" / "sessions") == {}


def test_names_with_control_characters_or_invalid_utf8_are_restored_unchanged(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_claude(tmp_path)
    odd = os.fsencode(path.with_suffix("")) + b"/a\x1b[31m\n\xff.txt"
    with open(odd, "wb") as file:
        file.write(b"odd")
    archive_claude(home, path)
    assert not os.path.exists(odd)
    home_of(tmp_path).archive.restore(home.archive.find(CLAUDE_ID))
    with open(odd, "rb") as file:
        assert file.read() == b"odd"


def test_a_damaged_catalog_line_is_reported_and_the_others_are_used(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    home.archive.archive(session_info(path))
    with open(home.archive.catalog.path, "ab") as file:
        file.write(b'{"id":"torn')
    write_claude(tmp_path)
    archive_claude(home, write_claude(tmp_path))
    again = home_of(tmp_path).archive
    assert [item.agent for item in again.items()] == ["native", "claude"]
    assert len(again.catalog.problems) == 1


def test_an_ambiguous_prefix_is_rejected_with_the_candidates(tmp_path: Path) -> None:
    home = home_of(tmp_path)
    for name in ("one", "two"):
        home.archive.archive(session_info(write_native(tmp_path, name=name)))
    with pytest.raises(AmbiguousError) as raised:
        home.archive.find(NATIVE_ID)
    assert len(raised.value.candidates) == 2
    with pytest.raises(NotFoundError, match="--list"):
        home.archive.find("nothing-like-that")


def test_a_kept_copy_is_refreshed_when_the_session_grows_and_survives_its_deletion(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_claude(tmp_path)
    assert home.archive.keep(session_info(path, "claude", CLAUDE_ID)) is not None
    assert home.archive.keep(session_info(path, "claude", CLAUDE_ID)) is None
    with path.open("ab") as file:
        file.write(b'{"type":"user"}\n')
    before = contents(tmp_path / "user")
    assert home.archive.keep(session_info(path, "claude", CLAUDE_ID)) is not None
    assert len(home.archive.items()) == 1, "the older copy is the beginning of the newer one"
    for file in before:
        os.unlink(file)
    home.archive.restore(home.archive.find(CLAUDE_ID))
    assert contents(tmp_path / "user") == before
    assert len(home.archive.items()) == 1, "the copy is not deleted"


def test_an_older_copy_stays_when_the_session_was_rewritten(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    first = path.read_bytes()
    home.archive.keep(session_info(path))
    path.write_bytes(b"something else altogether, and longer" * 100)
    home.archive.keep(session_info(path))
    kept = [b"".join(home.archive.objects.read(item.sha256)) for item in home.archive.items()]
    assert kept == [first, path.read_bytes()]


def test_purging_deletes_only_objects_that_no_other_item_uses(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    kept = home.archive.keep(session_info(path))
    moved = home.archive.archive(session_info(path)).item
    assert kept is not None
    home.archive.remove(moved, "purged")
    assert home.archive.objects.is_valid(kept.sha256)
    home.archive.remove(kept, "purged")
    assert not home.archive.objects.is_valid(kept.sha256)


def test_a_session_is_found_again_after_it_was_rewritten_moved_copied_and_cleaned(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    before = path.read_bytes()
    session = sessiontree.open(path)
    prune(home.archive, session, plan_prune(session, "m2"))
    session = sessiontree.open(path)
    plan = plan_move(session, "/work/b", home.allowed_paths, home.environment)
    move(home.archive, session, plan)
    home.archive.keep(session_info(Path(plan.target)))
    home.archive.archive(session_info(Path(plan.target)))
    restored_kinds = []
    for _ in range(3):
        item = home.archive.find(NATIVE_ID)
        restored_kinds.append(item.edit.verb if item.edit else item.kind)
        restore(home.archive, item)
    assert restored_kinds == ["moved", "mv", "prune"]
    assert path.read_bytes() == before


# Killed


def prepare(tmp: Path) -> None:
    write_claude(tmp)


def sound(tmp: Path) -> dict[str, bytes]:
    """Check that every file is unchanged, at its path or in the archive."""
    home = home_of(tmp)
    found = {
        file.path: b"".join(home.archive.objects.read(file.sha256))
        for item in home.archive.items()
        for file in item.files
    }
    standing = contents(tmp / "user").items()
    return found | {path: data for path, data in standing if not os.path.basename(path).startswith(".")}


def test_a_process_killed_while_archiving_leaves_the_original_or_a_verified_archive(
    tmp_path: Path, stride: int
) -> None:
    def check(here: Path) -> None:
        expected = dict(sound_original(here))
        assert sound(here) == expected
        home = home_of(here)
        home.archive.finish()
        path = claude_path(here)
        if path.exists():
            archive_claude(home, path)
        assert contents(here / "user") == {}
        assert len(home.archive.items()) == 1
        home.archive.restore(home.archive.find(CLAUDE_ID))
        assert contents(here / "user") == expected

    steps = kill_at_each_step(tmp_path, prepare, lambda home: archive_claude(home, claude_of(home)), check, stride)
    assert steps > 30


def test_a_process_killed_while_restoring_leaves_complete_files_and_the_archive(tmp_path: Path, stride: int) -> None:
    def prepared(here: Path) -> None:
        archive_claude(home_of(here), write_claude(here))

    def check(here: Path) -> None:
        expected = dict(sound_original(here))
        assert sound(here) == expected
        home = home_of(here)
        if home.archive.items():
            home.archive.restore(home.archive.find(CLAUDE_ID))
        assert {path: data for path, data in contents(here / "user").items() if ".tmp" not in path} == expected

    steps = kill_at_each_step(
        tmp_path, prepared, lambda home: home.archive.restore(home.archive.find(CLAUDE_ID)), check, stride
    )
    assert steps > 15


def test_a_process_killed_while_refreshing_a_copy_leaves_a_complete_copy(tmp_path: Path, stride: int) -> None:
    def prepared(here: Path) -> None:
        path = write_claude(here)
        home_of(here).archive.keep(session_info(path, "claude", CLAUDE_ID))
        with path.open("ab") as file:
            file.write(b'{"type":"user"}\n')

    def check(here: Path) -> None:
        home = home_of(here)
        for item in home.archive.items():
            assert b"".join(home.archive.objects.read(item.sha256)).startswith(original_lines(here))
        assert home.archive.items()

    steps = kill_at_each_step(
        tmp_path,
        prepared,
        lambda home: home.archive.keep(session_info(claude_of(home), "claude", CLAUDE_ID)),
        check,
        stride,
    )
    assert steps > 15


def claude_path(tmp: Path) -> Path:
    return tmp / "user" / ".claude" / "projects" / "-work-a" / f"{CLAUDE_ID}.jsonl"


def claude_of(home: Home) -> Path:
    return claude_path(Path(home.folder).parent)


def sound_original(tmp: Path) -> dict[str, bytes]:
    fresh = tmp / "fresh"
    write_claude(fresh)
    return {path.replace(f"{tmp}/fresh/", f"{tmp}/"): data for path, data in contents(fresh / "user").items()}


def original_lines(tmp: Path) -> bytes:
    return sound_original(tmp)[str(claude_path(tmp))]


def test_two_runs_at_once_wait_for_each_other(tmp_path: Path) -> None:
    paths = [write_native(tmp_path, name=f"s{number}") for number in range(20)]
    pids = []
    for half in (paths[::2], paths[1::2]):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                archive = home_of(tmp_path).archive
                for path in half:
                    item = archive.archive(session_info(path)).item
                    archive.restore(item)
                    archive.archive(session_info(path))
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
    home = home_of(tmp_path)
    assert len(home.archive.items()) == 20
    for item in home.archive.items():
        home.archive.restore(item)
    assert all(path.exists() for path in paths)


def test_a_root_may_be_reached_through_a_link_of_its_own(tmp_path: Path) -> None:
    path = write_native(tmp_path)
    (tmp_path / "way").symlink_to(tmp_path / "home")
    archive = Archive(str(tmp_path / "archive"), AllowedPaths([str(tmp_path / "way" / "sessions")]))
    through = tmp_path / "way" / "sessions" / path.parent.name / path.name
    item = archive.archive(SessionInfo(str(through), "native", NATIVE_ID)).item
    assert item.path == str(path)
    assert archive.restore(archive.find(str(through))) == [str(path)]
