"""Ids and paths: names that sort, never collide, are found by a prefix, and cannot leave their folder."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.core.ids import is_session_id, new_entry_id, new_session_id, timestamp
from sessiontree.errors import AmbiguousError, NotFoundError, UsageError
from sessiontree.paths import (
    find_session_file,
    home,
    iter_session_files,
    project_folder_name,
    session_path,
    short_id,
)
from tests.builders import examples, header, message_line

ONE = "019c0000-0000-7000-8000-00000000000a"
TWO = "019c0000-0000-7000-8000-00000000000b"
OTHER = "019d1111-0000-7000-8000-00000000000a"

BAD_IDS = [
    "",
    "..",
    ".",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "a\x00b",
    "-x",
    "x-",
    ".x",
    "x.",
    "_x",
    "a..b",
    "a b",
    "a\n",
    "é",
    "a*",
    "~",
]


def put(root: Path, id: str, folder: str = "project-0123456789") -> Path:
    """An empty session file with the right name."""
    path = root / "sessions" / folder / f"2026-02-16T10-00-00-000Z_{id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header(id=id) + message_line("m0"))
    return path


# Ids


def test_a_session_id_is_a_uuid_of_version_7_with_the_time_in_front() -> None:
    before = time.time_ns() // 1_000_000
    found = uuid.UUID(new_session_id())
    assert (found.version, found.variant) == (7, uuid.RFC_4122)
    assert before <= found.int >> 80 <= time.time_ns() // 1_000_000 + 100


def test_session_ids_are_written_in_lower_case_with_hyphens() -> None:
    found = new_session_id()
    assert str(uuid.UUID(found)) == found
    assert is_session_id(found)


def test_session_ids_sort_in_the_order_of_creation() -> None:
    ids = [new_session_id() for _ in range(20_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_session_ids_generated_by_threads_are_all_different() -> None:
    made: list[list[str]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda ids=ids: ids.extend(new_session_id() for _ in range(2000))) for ids in made
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id for ids in made for id in ids}) == 8000
    assert all(ids == sorted(ids) for ids in made)


def test_an_entry_id_is_eight_hex_digits() -> None:
    assert re.fullmatch(r"[0-9a-f]{8}", new_entry_id(set()))


def test_an_entry_id_is_never_one_that_is_taken() -> None:
    class AllButOne:
        """A container that claims to have the first few ids it is asked for."""

        def __init__(self) -> None:
            self.asked: list[str] = []

        def __contains__(self, id: object) -> bool:
            self.asked.append(str(id))
            return len(self.asked) < 50

    taken = AllButOne()
    found = new_entry_id(taken)
    assert len(taken.asked) == 50
    assert found == taken.asked[-1]
    assert found not in taken.asked[:-1]


def test_many_entry_ids_do_not_collide() -> None:
    taken: set[str] = set()
    for _ in range(50_000):
        taken.add(new_entry_id(taken))
    assert len(taken) == 50_000


def test_times_are_in_utc_to_the_millisecond_and_do_not_go_back() -> None:
    times = [timestamp() for _ in range(1000)]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each) for each in times)
    assert times == sorted(times)
    assert times[0][:13] in (
        time.strftime("%Y-%m-%dT%H", time.gmtime()),
        time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() - 60)),
    )


@pytest.mark.parametrize("id", BAD_IDS)
def test_an_id_that_could_be_a_path_is_not_a_session_id(id: str) -> None:
    assert not is_session_id(id)


@pytest.mark.parametrize("id", [ONE, "a", "A9", "my.session_1-b", "0" * 200])
def test_ids_of_letters_digits_and_some_punctuation_are_session_ids(id: str) -> None:
    assert is_session_id(id)


@examples(200)
@given(st.text(st.sampled_from("ab09._-/\\\x00\n ~é"), max_size=8))
def test_no_session_id_can_leave_its_folder(text: str) -> None:
    if is_session_id(text):
        assert os.path.normpath(os.path.join("/folder", text)) == f"/folder/{text}"
        assert not text.startswith((".", "-"))


# Paths of sessions


@pytest.mark.parametrize("id", BAD_IDS)
def test_a_session_is_not_created_under_a_bad_id(id: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        session_path(str(tmp_path), id, "2026", "/")
    with pytest.raises(UsageError):
        sessiontree.create(id=id, home=tmp_path, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stamp", ["../../x", "/etc/passwd", "a\x00b", "2026-02-16T10:00:00.000Z", ""])
def test_a_time_cannot_leave_the_folder(stamp: str, tmp_path: Path) -> None:
    path = session_path(str(tmp_path), ONE, stamp, "/work")
    assert os.path.dirname(path) == str(tmp_path / "sessions" / project_folder_name("/work"))
    assert "\x00" not in path


@pytest.mark.parametrize("cwd", ["/srv/../../etc", "..", "/", "", "/a/" + "x" * 300, "/tmp/\udcff"])
def test_a_cwd_cannot_leave_the_folder(cwd: str, tmp_path: Path) -> None:
    path = session_path(str(tmp_path), ONE, "2026", cwd)
    assert os.path.dirname(os.path.dirname(path)) == str(tmp_path / "sessions")
    assert len(os.fsencode(os.path.basename(os.path.dirname(path)))) <= 80


@pytest.mark.parametrize("cwd", ["/tmp/a\x00b", "/tmp/\ud800"])
def test_a_cwd_that_no_system_could_have_is_named_or_refused(cwd: str, tmp_path: Path) -> None:
    """It can be in the header of a forked session. Errors are ours, not the operating system's."""
    path: str | None = None
    with contextlib.suppress(UsageError):
        path = session_path(str(tmp_path), ONE, "2026", cwd)
    assert path is None or os.path.dirname(os.path.dirname(path)) == str(tmp_path / "sessions")


def test_a_folder_name_is_readable_and_carries_a_hash() -> None:
    assert re.fullmatch(r"my-project-[0-9a-f]{10}", project_folder_name("/srv/my project"))
    assert re.fullmatch(r"root-[0-9a-f]{10}", project_folder_name("/"))


@pytest.mark.parametrize(
    ("one", "other"),
    [("/a/b", "/a-b"), ("/a/b", "/c/b"), ("/a b", "/a-b"), ("/A", "/a"), ("/a.b", "/a-b"), ("/木", "/水"), ("/a", "/")],
)
def test_two_projects_never_share_a_folder(one: str, other: str) -> None:
    assert project_folder_name(one) != project_folder_name(other)


def test_one_project_has_one_folder_however_it_is_reached(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    expected = project_folder_name(str(tmp_path / "real"))
    for way in ("link", "real/.", "real/../real", "real/"):
        assert project_folder_name(f"{tmp_path}/{way}") == expected


def test_names_in_other_scripts_stay_readable_and_short_enough() -> None:
    assert project_folder_name("/work/木の家").startswith("木の家-")
    assert project_folder_name("/work/" + "木" * 80).startswith("木" * 16 + "-")
    assert len(project_folder_name("/work/" + "木" * 80).encode()) <= 60
    assert project_folder_name("/work/" + "木" * 80) != project_folder_name("/work/" + "木" * 81)


def test_a_session_in_a_folder_with_another_script_is_created_and_found(tmp_path: Path) -> None:
    project = tmp_path / "会議 メモ"
    project.mkdir()
    with sessiontree.create(cwd=project, home=tmp_path / "home") as session:
        session.append("user", "こんにちは")
        assert "会議-メモ-" in session.location
    assert sessiontree.open(session.id, home=tmp_path / "home").cwd == str(project)


def test_the_home_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "here"))
    assert home() == str(tmp_path / "here")
    monkeypatch.setenv("SESSIONTREE_HOME", "~/there")
    assert home() == os.path.expanduser("~/there")


def test_without_the_variable_home_is_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SESSIONTREE_HOME", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert home() == str(tmp_path / "sessiontree")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert home() == os.path.expanduser("~/.local/share/sessiontree")


# Finding a session


def test_a_session_is_found_by_its_full_id(tmp_path: Path) -> None:
    path = put(tmp_path, ONE)
    put(tmp_path, TWO)
    assert find_session_file(str(tmp_path), ONE) == str(path)
    assert sessiontree.open(ONE, home=tmp_path).id == ONE


def test_a_session_is_found_by_any_unambiguous_prefix_of_eight_and_more(tmp_path: Path) -> None:
    path = put(tmp_path, ONE)
    put(tmp_path, OTHER)
    for length in range(8, len(ONE) + 1):
        assert find_session_file(str(tmp_path), ONE[:length]) == str(path), ONE[:length]


def test_an_ambiguous_prefix_is_an_error_that_lists_the_candidates(tmp_path: Path) -> None:
    put(tmp_path, ONE)
    put(tmp_path, TWO, "another-0123456789")
    put(tmp_path, OTHER)
    with pytest.raises(AmbiguousError) as caught:
        find_session_file(str(tmp_path), "019c0000")
    assert sorted(caught.value.candidates) == [ONE, TWO]
    assert ONE in str(caught.value)
    assert TWO in str(caught.value)
    assert OTHER not in str(caught.value)


def test_a_prefix_that_is_a_full_id_matches_only_that_session(tmp_path: Path) -> None:
    path = put(tmp_path, "session-a")
    put(tmp_path, "session-ab")
    assert find_session_file(str(tmp_path), "session-a") == str(path)


def test_a_short_id_is_found_by_its_full_text(tmp_path: Path) -> None:
    path = put(tmp_path, "abc")
    assert find_session_file(str(tmp_path), "abc") == str(path)


def test_a_unique_prefix_of_any_length_is_accepted(tmp_path: Path) -> None:
    path = put(tmp_path, ONE)
    assert find_session_file(str(tmp_path), ONE[:7]) == str(path)
    assert find_session_file(str(tmp_path), ONE[:1]) == str(path)


def test_a_short_prefix_of_several_ids_is_ambiguous(tmp_path: Path) -> None:
    put(tmp_path, "abc-1")
    put(tmp_path, "abc-2")
    with pytest.raises(AmbiguousError, match="matches 2 sessions"):
        find_session_file(str(tmp_path), "abc")


def test_an_unknown_prefix_is_an_error_that_names_the_folder_searched(tmp_path: Path) -> None:
    put(tmp_path, ONE)
    with pytest.raises(NotFoundError, match=re.escape(str(tmp_path / "sessions"))):
        find_session_file(str(tmp_path), "ffffffff")


def test_a_missing_home_folder_has_no_sessions(tmp_path: Path) -> None:
    assert list(iter_session_files(str(tmp_path / "nowhere"))) == []
    with pytest.raises(NotFoundError):
        find_session_file(str(tmp_path / "nowhere"), ONE)


@pytest.mark.parametrize("id", BAD_IDS)
def test_an_invalid_id_is_not_searched_for(id: str, tmp_path: Path) -> None:
    put(tmp_path, ONE)
    with pytest.raises(NotFoundError):
        find_session_file(str(tmp_path), id)


@pytest.mark.parametrize("wanted", ["..", "../../etc/passwd", "/etc/passwd\x00.jsonl", "-x", ""])
def test_opening_by_a_bad_name_is_a_clear_error(wanted: str, tmp_path: Path) -> None:
    with pytest.raises(sessiontree.SessionTreeError):
        sessiontree.open(wanted, home=tmp_path)


def test_files_that_are_not_sessions_are_not_listed(tmp_path: Path) -> None:
    path = put(tmp_path, ONE)
    for name in ("notes.txt", f"{ONE}.jsonl", f".2026_{TWO}.jsonl.tmp", f"2026_{TWO}.jsonl.bak"):
        (path.parent / name).write_bytes(b"")
    (path.parent / f"2026_{TWO}.jsonl").mkdir()
    (tmp_path / "sessions" / f"2026_{TWO}.jsonl").write_bytes(b"")
    assert list(iter_session_files(str(tmp_path))) == [(ONE, str(path))]


def test_links_inside_the_sessions_folder_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "home"
    path = put(root, ONE)
    outside = put(tmp_path / "outside", TWO)
    (root / "sessions" / "linked-folder").symlink_to(outside.parent)
    (path.parent / f"2026_{OTHER}.jsonl").symlink_to(outside)
    assert list(iter_session_files(str(root))) == [(ONE, str(path))]
    with pytest.raises(NotFoundError):
        find_session_file(str(root), TWO)


def test_a_session_is_not_written_through_a_link(tmp_path: Path) -> None:
    project, root, outside = tmp_path / "project", tmp_path / "home", tmp_path / "outside"
    for folder in (project, root / "sessions", outside):
        folder.mkdir(parents=True)
    (root / "sessions" / project_folder_name(str(project))).symlink_to(outside)
    with pytest.raises(UsageError, match="symbolic link"):
        sessiontree.create(cwd=project, home=root)
    assert list(outside.iterdir()) == []


def ids_in(root: Path) -> list[str]:
    return [id for id, _ in iter_session_files(str(root))]


@pytest.mark.parametrize("others", [[], [OTHER], [TWO], ["019c00000"], ["019c0000x"], [ONE + "x"], ["019c0000-00000"]])
def test_the_short_form_of_an_id_is_unambiguous(others: list[str], tmp_path: Path) -> None:
    path = put(tmp_path, ONE)
    for other in others:
        put(tmp_path, other)
    found = short_id(ONE, ids_in(tmp_path))
    assert len(found) >= 8
    assert find_session_file(str(tmp_path), found) == str(path)


def test_the_short_form_is_as_short_as_possible(tmp_path: Path) -> None:
    put(tmp_path, ONE)
    put(tmp_path, OTHER)
    assert short_id(ONE, ids_in(tmp_path)) == ONE[:8]
    put(tmp_path, TWO)
    assert short_id(ONE, ids_in(tmp_path)) == ONE
