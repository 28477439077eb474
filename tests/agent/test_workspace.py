"""Paths from a model are resolved, and do not leave the workspace without approval."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from sessiontree.agent.tools.read import READ
from sessiontree.agent.tools.write_edit import EDIT, WRITE
from sessiontree.agent.workspace import Workspace
from sessiontree.errors import PathError
from sessiontree.stores.safe_files import (
    change_permissions,
    find_file,
    read_file,
    remove_file,
    write_file,
    write_link,
)
from tests.agent.builders import Workplace


@pytest.mark.parametrize(
    "text", ["a.txt", "./a.txt", "x/../a.txt", "-rf", "--help", "~x", "folder with spaces/日本.txt", "...", "a\nb"]
)
def test_a_path_in_the_project_is_inside(text: str, tmp_path: Path) -> None:
    assert Workspace(tmp_path).resolve(text).is_inside


@pytest.mark.parametrize(
    "text", ["..", "../x", "a/../../x", "/etc/passwd", "~", "~/x", "/", "//etc/passwd", "./.././x"]
)
def test_a_path_that_leaves_the_project_is_outside(text: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    assert not Workspace(tmp_path / "project").resolve(text).is_inside


def test_a_folder_with_the_same_prefix_is_outside(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project-secret").mkdir()
    assert not Workspace(tmp_path / "project").resolve("../project-secret/x").is_inside


def test_an_added_folder_is_inside(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "lib").mkdir()
    workspace = Workspace(tmp_path / "project", [tmp_path / "lib"])
    assert workspace.resolve("../lib/x").is_inside
    assert not workspace.resolve("../x").is_inside


def test_a_link_to_the_outside_is_outside_and_resolved(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "door").symlink_to(tmp_path)
    (tmp_path / "project" / "file").symlink_to("/etc/passwd")
    workspace = Workspace(tmp_path / "project")
    assert workspace.resolve("door/x").path == str(tmp_path / "x")
    assert not workspace.resolve("door/x").is_inside
    assert not workspace.resolve("file").is_inside


def test_a_project_reached_through_a_link_works(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert Workspace(tmp_path / "link").resolve("x").is_inside


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800"])
def test_invalid_paths_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(PathError):
        Workspace(tmp_path).resolve(text)


@pytest.mark.parametrize("text", [".git/config", "x/.GIT/hooks/pre-commit", ".ssh/authorized_keys"])
def test_files_that_can_run_programs_are_guarded(text: str, tmp_path: Path) -> None:
    assert Workspace(tmp_path).resolve(text).is_guarded


def test_a_link_created_after_the_approval_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "project" / "src").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    place = Workspace(tmp_path / "project").resolve("src/new.txt")
    assert place.is_inside
    (tmp_path / "project" / "src").rmdir()
    (tmp_path / "project" / "src").symlink_to(tmp_path / "outside")
    with pytest.raises(PathError, match="symbolic link"):
        write_file(place.path, b"x")
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_file_replaced_by_a_link_after_the_approval_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    target = tmp_path / "project" / "a.txt"
    target.parent.mkdir()
    target.write_text("a")
    place = Workspace(tmp_path / "project").resolve("a.txt")
    target.unlink()
    target.symlink_to(tmp_path / "secret")
    with pytest.raises(PathError, match="symbolic link"):
        read_file(place.path)
    with pytest.raises(PathError, match="symbolic link"):
        write_file(place.path, b"x")
    with pytest.raises(PathError, match="symbolic link"):
        change_permissions(place.path, 0o777)
    assert (tmp_path / "secret").read_text() == "secret"


def test_replacing_a_folder_by_a_link_gives_no_access(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    for folder, text in ((project / "real", "inside"), (outside, "secret")):
        folder.mkdir(parents=True)
        (folder / "f").write_text(text)
    path = str(project / "src" / "f")
    stop = threading.Event()

    def swap() -> None:
        link, folder, at = project / "link", project / "real", project / "src"
        link.symlink_to(outside)
        while not stop.is_set():
            for one in (link, folder):
                os.rename(one, at)
                os.rename(at, one)

    thread = threading.Thread(target=swap)
    thread.start()
    seen, refused = set(), 0
    try:
        for _ in range(5000):
            try:
                seen.add(read_file(path).data)
            except PathError:
                refused += 1
            except FileNotFoundError:
                continue
    finally:
        stop.set()
        thread.join()
    assert seen <= {b"inside"}
    assert refused


def test_pipes_devices_sockets_and_folders_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    try:
        for path in (tmp_path / "pipe", tmp_path / "socket", Path("/dev/null"), tmp_path):
            with pytest.raises(PathError, match="regular file"):
                read_file(str(path))
        with pytest.raises(PathError, match="regular file"):
            write_file(str(tmp_path / "pipe"), b"x")
    finally:
        listening.close()


def test_a_file_is_replaced_atomically_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("old")
    path.chmod(0o751)
    assert write_file(str(path), b"new") == []
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o751
    assert [one.name for one in tmp_path.iterdir()] == ["run.sh"]


def test_created_folders_are_returned(tmp_path: Path) -> None:
    made = write_file(str(tmp_path / "a" / "b" / "c.txt"), b"x")
    assert made == [str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    assert write_link(str(tmp_path / "l" / "link"), "target") == [str(tmp_path / "l")]
    assert os.readlink(tmp_path / "l" / "link") == "target"
    remove_file(str(tmp_path / "l" / "link"))
    assert not os.path.lexists(tmp_path / "l" / "link")


def test_a_failing_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(PathError):
        write_file(str(tmp_path / "there"), b"x")
    assert list((tmp_path / "there").iterdir()) == []
    assert find_file(str(tmp_path / "nothing")) is None


@pytest.mark.parametrize("name", ["-rf", "--output=x", "-", "--"])
def test_names_that_look_like_options_are_treated_as_names(name: str, place: Workplace) -> None:
    assert not place.run(WRITE, path=name, content="one\n").is_error
    assert not place.run(EDIT, path=name, old_text="one", new_text="two").is_error
    assert place.run(READ, path=name).text == "two"
    assert (place.project / name).read_text() == "two\n"
